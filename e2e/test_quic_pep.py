"""`bentpipe quic-pep` between `bentpipe perf` and its server, over an emulated link: certificates, modes, errors."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.process import Process
from emulated import GATEWAY, LONGER, Emulated, emulated

RTT_NS = 100_000_000
MIB = 1 << 20
AIOQUIC = Path(__file__).parent / "clients" / "aioquic_files.py"
FILES = "4434"
"""Port of a server of HTTP/3."""
FIRST, SECOND = "127.0.0.1:4501", f"{GATEWAY}:4502"


@dataclass
class Split:
    """A link with a server at the gateway's end."""

    link: Emulated
    directory: Path
    server_certificate: Path

    def init(self, name: str, text: str) -> Path:
        """Make a proxy's authority and configuration; the configuration."""
        config = self.directory / f"{name}.toml"
        config.write_text(text)
        done = bentpipe("quic-pep", "init", "--config", config)
        assert done.returncode == 0, done.stderr
        assert f"--cacert {config.with_suffix('.ca.pem')}" in done.stdout
        assert config.with_suffix(".ca.key").stat().st_mode & 0o077 == 0, "the authority's key is its owner's only"
        return config

    @contextmanager
    def proxy(self, config: Path, *, at_gateway: bool = False) -> Iterator[Process]:
        """Run a proxy at one end of the link."""
        where = self.link.gateway if at_gateway else self.link.terminal
        argv = where.command([host.binary(), "quic-pep", "--config", config])
        process = Process(config.stem, argv, self.directory)
        try:
            process.wait_line("quic-pep: listening on")
            yield process
        finally:
            assert process.stop() == 0

    def perf(self, ca: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """Measure through the first proxy."""
        argv: list[str | Path] = [
            host.binary(),
            "perf",
            "client",
            FIRST,
            "--ca",
            ca,
            "--name",
            "perf.test",
            "--json",
            "-",
            *options,
        ]
        command = self.link.terminal.command(argv)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def report(self, ca: Path, *options: str) -> dict[str, Any]:
        """The report of a measurement that ends well."""
        done = self.perf(ca, *options)
        assert done.returncode == 0, done.stderr
        read: dict[str, Any] = json.loads(done.stdout)
        return read


def bentpipe(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(host.binary()), *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Split]:
    directory = tmp_path_factory.mktemp("quic-pep")
    with emulated(directory, LONGER) as link:
        certificate = directory / "server.pem"
        argv: list[str | Path] = [
            host.binary(),
            "perf",
            "server",
            "--name",
            "perf.test",
            "--certificate-out",
            certificate,
        ]
        server = Process("server", link.gateway.command(argv), directory)
        try:
            server.wait_line("perf server on")
            yield Split(link, directory, certificate)
        finally:
            server.stop()


def ca(config: Path) -> Path:
    return config.with_suffix(".ca.pem")


def one_proxy(split: Split, name: str, *lines: str, trusts: Path | None = None) -> Path:
    """A proxy at the terminal, straight to the server."""
    text = [
        f'listen = "{FIRST}"',
        f'next = {{ address = "{GATEWAY}:4433" }}',
        f'ca = "{trusts or split.server_certificate}"',
        *lines,
    ]
    return split.init(name, "\n".join(text))


@pytest.mark.parametrize("mode", ["default", "h3-capable"])
def test_a_transfer_both_ways_over_many_streams(split: Split, mode: str) -> None:
    config = one_proxy(split, mode, f'mode = "{mode}"')
    with split.proxy(config):
        report = split.report(ca(config), "--download", "1 MiB", "--upload", "1 MiB", "--streams", "4")
    assert report["received_bytes"] == MIB
    assert report["sent_bytes"] == MIB
    (connection,) = report["connections"]
    done = connection["establishment"]["done_ns"]
    if mode == "h3-capable":
        assert done >= RTT_NS, "not before the server"
    assert connection["first_byte_ns"] >= 2 * RTT_NS


@pytest.mark.parametrize("mode", ["default", "h3-capable", "h3-parallel"])
def test_another_stacks_http3(split: Split, tmp_path: Path, mode: str) -> None:
    www, kept, certificate = tmp_path / "www", tmp_path / "kept", tmp_path / "files.pem"
    www.mkdir()
    kept.mkdir()
    names = ["a", "b", "c"]
    for name in names:
        (www / name).write_bytes(incompressible(name, 100_000))
    listen = ("--listen", f"{GATEWAY}:{FILES}", "--name", "perf.test", "--certificate-out", certificate)
    serve: list[str | Path] = [host.binary(), "perf", "server", *listen, "--www", www]
    server = Process("files", split.link.gateway.command(serve), tmp_path)
    config = split.init(
        f"http3-{mode}",
        f'listen = "{FIRST}"\nmode = "{mode}"\nca = "{certificate}"\n'
        f'next = {{ address = "{GATEWAY}:{FILES}", name = "perf.test" }}\n',
    )
    try:
        server.wait_line("perf server on")
        with split.proxy(config):
            # In h3-parallel the second finds a server that is known.
            for _ in range(2):
                urls = [f"https://{FIRST}/{name}" for name in names]
                argv: list[str | Path] = [sys.executable, AIOQUIC, "client", ca(config), kept, "h3", "1", *urls]
                command = split.link.terminal.command(argv)
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
                assert done.returncode == 0, done.stderr
                for name in names:
                    assert (kept / name).read_bytes() == (www / name).read_bytes()
                    (kept / name).unlink()
    finally:
        server.stop()


def test_two_proxies_in_a_row(split: Split) -> None:
    second = split.init(
        "second",
        f'listen = "{SECOND}"\nnext = {{ address = "{GATEWAY}:4433" }}\nca = "{split.server_certificate}"\n',
    )
    first = split.init(
        "first",
        f'listen = "{FIRST}"\nca = "{ca(second)}"\n'
        f'next = {{ address = "{SECOND}", kind = "pep", name = "pep.test" }}\n',
    )
    with split.proxy(second, at_gateway=True), split.proxy(first):
        # Some find a connection ready, and some wait for one.
        for _ in range(6):
            report = split.report(ca(first), "--download", "1 MiB", "--upload", "100 kB")
            assert report["received_bytes"] == MIB


def test_a_client_that_does_not_trust_the_authority_is_not_served(split: Split) -> None:
    config = one_proxy(split, "untrusted")
    with split.proxy(config):
        done = split.perf(split.server_certificate, "--download", "1 B")
    assert done.returncode != 0
    assert "certificate" in done.stderr


def test_a_server_that_the_proxy_does_not_trust_is_not_reached(split: Split) -> None:
    stranger = split.init("stranger", f'next = {{ address = "{GATEWAY}:4433" }}\n')
    config = one_proxy(split, "distrusts", trusts=ca(stranger))
    with split.proxy(config) as proxy:
        done = split.perf(ca(config), "--download", "1 B")
    assert done.returncode != 0
    assert f"the certificate of {GATEWAY}:4433 is not to be trusted" in proxy.log.read_text()


def test_help_says_what_it_sees() -> None:
    assert "IT DECRYPTS EVERYTHING" in " ".join(bentpipe("quic-pep", "--help").stdout.split())


def test_without_a_certificate_it_says_how_to_get_one(tmp_path: Path) -> None:
    config = tmp_path / "pep.toml"
    config.write_text('next = { address = "server.example:443" }\n')
    done = bentpipe("quic-pep", "--config", config)
    assert done.returncode == 2
    assert f"bentpipe quic-pep init --config {config}" in done.stderr
