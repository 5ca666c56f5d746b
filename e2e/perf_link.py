"""A link in two namespaces with a server of `bentpipe perf` at its far end."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from emulated import GATEWAY, LONGER, Emulated, emulated

RTT_NS = 100_000_000


@dataclass
class Measured:
    """A link with a server at the gateway's end."""

    link: Emulated
    server: Process
    certificate: Path
    fingerprint: str
    qlogs: Path

    def client(self, *options: str | Path, trusts: tuple[str | Path, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run a client to its end."""
        argv = [str(host.binary()), "perf", "client", GATEWAY]
        argv += map(str, trusts or ("--ca", self.certificate, "--name", "perf.test"))
        command = self.link.terminal.command([*argv, *map(str, options)])
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def report(self, *options: str | Path) -> dict[str, Any]:
        """The report of a client that ends well."""
        done = self.client("--json", "-", *options)
        assert done.returncode == 0, done.stderr
        read: dict[str, Any] = json.loads(done.stdout)
        return read


@contextmanager
def measuring(directory: Path, *options: str, scenario: str = LONGER) -> Iterator[Measured]:
    """A link and a server, ended however the block ends."""
    with emulated(directory, scenario) as link:
        certificate = directory / "server.pem"
        argv = [
            *(host.binary(), "perf", "server", "--name", "perf.test", "--certificate-out", certificate),
            *("--json", "-", "--qlog", directory / "qlog", *options),
        ]
        server = Process("server", link.gateway.command([str(word) for word in argv]), directory)
        try:
            fingerprint = server.wait_line("perf server on").rpartition("key ")[2]
            yield Measured(link, server, certificate, fingerprint, directory / "qlog")
        finally:
            server.stop()


def certificate_and_key(directory: Path) -> tuple[Path, Path]:
    """A certificate for perf.test that is its own authority, and its key."""
    certificate, key = directory / "server.pem", directory / "server.key"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=perf.test", "-addext", "subjectAltName=DNS:perf.test"]
    leaf = ["-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *names, *leaf, *files], check=True, capture_output=True)
    return certificate, key
