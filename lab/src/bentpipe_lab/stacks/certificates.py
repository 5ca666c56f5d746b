"""Certificates for the servers of a matrix: an authority and a leaf with subject alternative names, nothing more.

With a key usage extension kwik refuses an elliptic-curve leaf.
"""

from collections.abc import Sequence
from pathlib import Path

from bentpipe_lab.net import netns

AUTHORITY, CHAIN, KEY = "ca.pem", "cert.pem", "priv.key"
DAYS = "14"
"""Chromium takes a pinned key in place of an authority only of certificates that are valid for a short time."""


def make(directory: Path, names: Sequence[str], addresses: Sequence[str]) -> None:
    """Make `ca.pem`, `cert.pem` and `priv.key` (ECDSA P-256) for names and addresses in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    authority_key, request, extensions = (directory / name for name in ("ca.key", "leaf.csr", "extensions"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    config = directory / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = dn\n[dn]\n[ca]\nbasicConstraints = critical, CA:TRUE\n")
    netns.checked(
        ["openssl", "req", "-x509", *curve, "-days", DAYS, "-subj", "/CN=bentpipe matrix", "-config", str(config),
         "-extensions", "ca", "-keyout", str(authority_key), "-out", str(directory / AUTHORITY)]
    )  # fmt: skip
    netns.checked(
        ["openssl", "req", *curve, "-subj", f"/CN={names[0]}", "-config", str(config),
         "-keyout", str(directory / KEY), "-out", str(request)]
    )  # fmt: skip
    alternatives = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
    extensions.write_text(f"subjectAltName={alternatives}\n")
    netns.checked(
        ["openssl", "x509", "-req", "-in", str(request), "-CA", str(directory / AUTHORITY), "-CAkey",
         str(authority_key), "-CAcreateserial", "-days", DAYS, "-extfile", str(extensions),
         "-out", str(directory / CHAIN)]
    )  # fmt: skip
    (directory / KEY).chmod(0o644)  # some endpoints give up root before they read it
