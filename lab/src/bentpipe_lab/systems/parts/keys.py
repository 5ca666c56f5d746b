"""Keys of systems under test, made anew for each path: every peer is verified, as it would be in the field."""

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.net import netns

NAME = "gateway.bentpipe.test"
_X25519_BYTES = 32


@dataclass(frozen=True)
class Identity:
    """A certificate that its own key has signed, and the key."""

    certificate: Path
    key: Path

    def fingerprint(self) -> str:
        """The certificate's SHA-256, in hexadecimal digits with colons."""
        der = subprocess.run(
            ["openssl", "x509", "-in", str(self.certificate), "-outform", "DER"], capture_output=True, check=True
        ).stdout
        digest = hashlib.sha256(der).hexdigest().upper()
        return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def identity(directory: Path, name: str = NAME) -> Identity:
    """Make one, ECDSA P-256, for a name."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Identity(directory.absolute() / "certificate.pem", directory.absolute() / "key.pem")
    netns.checked(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
            "-keyout", str(made.key), "-out", str(made.certificate),
        ]
    )  # fmt: skip
    return made


def x25519() -> tuple[bytes, bytes]:
    """A private key and its public key."""
    private = _openssl(["genpkey", "-algorithm", "X25519", "-outform", "DER"])
    public = _openssl(["pkey", "-inform", "DER", "-pubout", "-outform", "DER"], private)
    # Both encodings end with the key itself (RFC 8410).
    return private[-_X25519_BYTES:], public[-_X25519_BYTES:]


def _openssl(words: list[str], given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True).stdout
