"""Files over `bentpipe perf`, from our server and other people's, to our client and theirs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.process import Process
from emulated import GATEWAY, bentpipe
from perf_link import Measured, certificate_and_key, measuring

FILE = 300_000
"""Bytes of the files that are fetched: a few round trips."""
AIOQUIC = Path(__file__).parent / "clients" / "aioquic_files.py"
ALPNS = pytest.mark.parametrize("alpn", ["h3", "hq-interop"])
VERSIONS = pytest.mark.parametrize("version", ["1", "2"])


@dataclass
class Web:
    """A directory with files, and where they are kept that arrive."""

    www: Path
    kept: Path
    names: list[str]

    def urls(self, port: int = 4433) -> list[str]:
        """Where the files are."""
        return [f"https://{GATEWAY}:{port}/{name}" for name in self.names]

    def assert_arrived(self) -> None:
        """Every file is there, whole; it is removed."""
        for name in self.names:
            arrived = self.kept / name
            assert arrived.read_bytes() == (self.www / name).read_bytes()
            arrived.unlink()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Web:
    """Three files."""
    www, kept = (tmp_path_factory.mktemp(name) for name in ("www", "kept"))
    names = ["a", "b", "c"]
    for name in names:
        (www / name).write_bytes(incompressible(name, FILE))
    return Web(www, kept, names)


@pytest.fixture(scope="module")
def serving(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """Our server of files."""
    with measuring(tmp_path_factory.mktemp("serving"), "--www", str(web.www)) as server:
        yield server


def _get(serving: Measured, *options: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [host.binary(), "perf", "get", "--ca", serving.certificate, "--name", "perf.test", *options]
    command = serving.link.terminal.command([str(word) for word in argv])
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@VERSIONS
@ALPNS
def test_files_come_over_one_connection(serving: Measured, web: Web, alpn: str, version: str) -> None:
    options = ("--alpn", alpn, "--quic-version", version, "--save", web.kept, "--at-once", "3", "--json", "-")
    done = _get(serving, *options, *web.urls())
    assert done.returncode == 0, done.stderr
    web.assert_arrived()
    report = json.loads(done.stdout)
    assert report["received_bytes"] == 3 * FILE
    assert report["requests"]["count"] == 3
    assert report["parameters"]["quic_version"] == {"1": 1, "2": 0x6B3343CF}[version]
    assert len(report["connections"]) == 1


@VERSIONS
@ALPNS
def test_another_stacks_client_has_the_files_and_nothing_else(
    serving: Measured, web: Web, alpn: str, version: str
) -> None:
    argv = [sys.executable, AIOQUIC, "client", serving.certificate, web.kept, alpn, version, *web.urls()]
    command = serving.link.terminal.command([str(word) for word in argv])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    web.assert_arrived()


def test_a_file_that_is_not_there_is_told(serving: Measured) -> None:
    for alpn, said in (("h3", "404"), ("hq-interop", "reset the stream")):
        done = _get(serving, "--alpn", alpn, f"https://{GATEWAY}:4433/../secret")
        assert done.returncode == 1
        assert said in done.stderr
    done = serving.client("--download", "1 kB")
    assert done.returncode == 0, done.stderr


@VERSIONS
@ALPNS
def test_files_come_from_another_stacks_server(
    serving: Measured, web: Web, tmp_path: Path, alpn: str, version: str
) -> None:
    certificate, key = certificate_and_key(tmp_path)
    argv = [sys.executable, AIOQUIC, "server", certificate, key, web.www, GATEWAY, "4434"]
    server = Process("aioquic", serving.link.gateway.command([str(word) for word in argv]), tmp_path)
    try:
        server.wait_line("listening")
        options = ("--ca", certificate, "--name", "perf.test", "--alpn", alpn, "--quic-version", version)
        argv = [host.binary(), "perf", "get", *options, "--save", web.kept, *web.urls(4434)]
        command = serving.link.terminal.command([str(word) for word in argv])
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        web.assert_arrived()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["http://127.0.0.1/a"], "https://"),
        (["https://127.0.0.1/a", "https://127.0.0.2/b"], "another server's"),
        (["https://127.0.0.1/a", "--at-once", "0"], "1 to 256"),
        (["https://127.0.0.1/a", "https://127.0.0.1/b/a", "--save", "/var"], "the same name"),
        (["https://127.0.0.1/a", "--save", "/nowhere"], "/nowhere"),
        (["https://127.0.0.1/a", "--over", "tcp"], "QUIC only"),
        (["https://127.0.0.1/a", "--interval", "0 s"], "at least 1 ms"),
    ],
)
def test_files_that_cannot_be_fetched_are_refused_with_the_remedy(options: list[str], said: str) -> None:
    done = bentpipe("perf", "get", *options)
    assert done.returncode == 2
    assert said in done.stderr
