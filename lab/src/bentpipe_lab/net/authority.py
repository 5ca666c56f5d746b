"""The certificate authority of a path: every TLS server of the lab has its certificate from it, clients trust it."""

import base64
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bentpipe_lab.net import content, netns
from bentpipe_lab.net.topology import SERVER4, Topology

DOMAIN = content.HOST.partition(".")[2]
_NAMES = f"DNS:{DOMAIN},DNS:*.{DOMAIN},DNS:*.third.{DOMAIN},DNS:{content.QUIC_HOST},IP:{SERVER4}"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


@dataclass(frozen=True)
class Identity:
    """A certificate for all names of the lab's domain, and its private key."""

    chain: Path
    """The certificate, then the authority's."""
    key: Path


@dataclass(frozen=True)
class Authority:
    """An authority that lives as long as its path."""

    directory: Path

    @classmethod
    def of(cls, path: Topology) -> Self:
        """The path's; it is made when somebody first asks for it."""
        return cls.at(path.directory.absolute() / "authority")

    @classmethod
    def at(cls, directory: Path) -> Self:
        """The one that is kept in a directory, made when there is none."""
        authority = cls(directory)
        if not authority.certificate.exists():
            authority.directory.mkdir(parents=True, exist_ok=True)
            _openssl("req", "-x509", *_KEY, "-subj", "/CN=bentpipe lab", "-keyout", authority.key, "-out",
                     authority.certificate)  # fmt: skip
        return authority

    @property
    def certificate(self) -> Path:
        """What a client trusts."""
        return self.directory / "authority.pem"

    @property
    def key(self) -> Path:
        """What it signs with."""
        return self.directory / "authority.key"

    def issue(self, name: str) -> Identity:
        """A certificate and key for a server, the same whenever it asks again."""
        identity = Identity(self.directory / f"{name}.chain.pem", self.directory / f"{name}.key")
        if not identity.chain.exists():
            leaf = self._leaf(name)
            _openssl(
                "req", "-x509", "-CA", self.certificate, "-CAkey", self.key, *_KEY, "-subj", f"/CN={content.HOST}",
                "-addext", f"subjectAltName={_NAMES}", "-addext", "basicConstraints=CA:FALSE",
                "-addext", "extendedKeyUsage=serverAuth", "-keyout", identity.key, "-out", leaf,
            )  # fmt: skip
            identity.chain.write_text(leaf.read_text() + self.certificate.read_text())
        return identity

    def pins(self) -> str:
        """SHA-256 of the public keys of all that it has issued, Base64, with commas, as Chromium takes them."""
        return ",".join(_pin(leaf) for leaf in sorted(self.directory.glob("*.leaf.pem")))

    def _leaf(self, name: str) -> Path:
        return self.directory / f"{name}.leaf.pem"


def _openssl(*words: str | Path) -> None:
    netns.checked(["openssl", *map(str, words)])


def _pin(certificate: Path) -> str:
    public = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-pubkey"], capture_output=True, check=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"], input=public, capture_output=True, check=True
    ).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()
