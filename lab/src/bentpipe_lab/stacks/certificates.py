"""Certificates for the servers of a matrix, from their path's authority: subject alternative names, nothing more.

With a key usage extension kwik refuses an elliptic-curve leaf.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from bentpipe_lab.net import netns
from bentpipe_lab.net.authority import Authority

AUTHORITY, CHAIN, KEY = "ca.pem", "cert.pem", "priv.key"
DAYS = "14"
"""Chromium takes a pinned key in place of an authority only of certificates that are valid for a short time."""


def make(directory: Path, authority: Authority, names: Sequence[str], addresses: Sequence[str]) -> None:
    """Make `cert.pem` and `priv.key` (ECDSA P-256) for names and addresses in a directory, beside the `ca.pem`."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(authority.certificate, directory / AUTHORITY)
    request, extensions = (directory / name for name in ("leaf.csr", "extensions"))
    netns.checked(
        ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", DAYS,
         "-subj", f"/CN={names[0]}", "-keyout", str(directory / KEY), "-out", str(request)]
    )  # fmt: skip
    alternatives = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
    extensions.write_text(f"subjectAltName={alternatives}\n")
    netns.checked(
        ["openssl", "x509", "-req", "-in", str(request), "-CA", str(authority.certificate), "-CAkey",
         str(authority.key), "-CAcreateserial", "-days", DAYS, "-extfile", str(extensions),
         "-out", str(directory / CHAIN)]
    )  # fmt: skip
    (directory / KEY).chmod(0o644)  # some endpoints give up root before they read it
