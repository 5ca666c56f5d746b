"""`bentpipe quic-pep` when next hops, peers and it itself fail: how soon clients are told, and that others go on."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from emulated import GATEWAY, LONGER, TERMINAL, Emulated, bentpipe, emulated

FIRST, SECOND = f"{TERMINAL}:4501", f"{GATEWAY}:4502"
READY = "quic-pep: listening on"


class Row:
    """Client, proxies and server: what a test starts, kills and starts again."""

    def __init__(self, link: Emulated, directory: Path) -> None:
        self.link = link
        self.directory = directory
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"
        self.running: list[Process] = []
        words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-keyout", str(self.key), "-out", str(self.certificate), "-subj", "/CN=perf.test"]
        words += ["-addext", "subjectAltName=DNS:perf.test", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def server(self, *options: str) -> Process:
        """The server at the gateway's end, always with the same key."""
        identity: list[str | Path] = ["--certificate", self.certificate, "--key", self.key]
        argv: list[str | Path] = [host.binary(), "perf", "server", "--listen", f"{GATEWAY}:4433", *identity, *options]
        return self.start("server", self.link.gateway.command(argv), "perf ")

    def proxy(self, name: str, *lines: str) -> Process:
        """A proxy: `first` at the terminal, `second` at the gateway."""
        config = self.config(name)
        if not config.exists():
            config.write_text("\n".join(lines))
            assert bentpipe("quic-pep", "init", "--config", config).returncode == 0
        where = self.link.terminal if name == "first" else self.link.gateway
        return self.start(name, where.command([host.binary(), "quic-pep", "--config", config]), READY)

    def config(self, name: str) -> Path:
        """Its configuration."""
        return self.directory / f"{name}.toml"

    def one(self) -> Process:
        """A proxy at the terminal, straight to the server."""
        to = f'next = {{ address = "{GATEWAY}:4433" }}'
        return self.proxy("first", f'listen = "{FIRST}"', to, f'ca = "{self.certificate}"')

    def two(self) -> tuple[Process, Process]:
        """One at each end of the link."""
        to = f'next = {{ address = "{GATEWAY}:4433" }}'
        second = self.proxy("second", f'listen = "{SECOND}"', to, f'ca = "{self.certificate}"')
        ca = self.config("second").with_suffix(".ca.pem")
        to = f'next = {{ address = "{SECOND}", kind = "pep", name = "pep.test" }}'
        return self.proxy("first", f'listen = "{FIRST}"', to, f'ca = "{ca}"'), second

    def command(self, *options: str, name: str = "perf.test") -> list[str]:
        """A measurement through the first proxy, of the server of that name."""
        trust = ("--ca", self.config("first").with_suffix(".ca.pem"), "--name", name)
        argv: list[str | Path] = [host.binary(), "perf", "client", FIRST, *trust, "--json", "-", *options]
        return self.link.terminal.command(argv)

    def measure(self, *options: str, name: str = "perf.test") -> tuple[dict[str, Any], float]:
        """Its report, and how long it took."""
        began = time.monotonic()
        done = subprocess.run(
            self.command(*options, name=name), capture_output=True, text=True, check=False, timeout=120
        )
        report: dict[str, Any] = json.loads(done.stdout)
        return report, time.monotonic() - began

    def start(self, name: str, argv: list[str], ready: str) -> Process:
        """Run a program until the end of the test, and wait for what it says when it is ready."""
        process = Process(name, argv, self.directory)
        self.running.append(process)
        process.wait_line(ready)
        return process


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Row]:
    with emulated(tmp_path, LONGER) as link:
        row = Row(link, tmp_path)
        try:
            yield row
        finally:
            for process in reversed(row.running):
                process.stop()


SOME = ("--download", "100 kB")


def test_a_proxy_that_was_killed_and_started_again_is_used_again_at_once(row: Row) -> None:
    """Its neighbour has connections ready to the one that is no more: four of them, and a client for each."""
    row.server()
    _, second = row.two()
    report, _ = row.measure(*SOME)
    assert report["ok"], report["error"]
    second.kill()
    row.proxy("second")
    report, took_s = row.measure(*SOME)
    if not report["ok"]:
        assert took_s < 5.0, f"{report['error']} after {took_s} s"
        # The first is told, and with it the proxy of all that were ready.
        report, _ = row.measure(*SOME)
    assert report["ok"], report["error"]


def test_a_server_that_was_down_is_reached_when_it_is_back(row: Row) -> None:
    server = row.server()
    row.one()
    report, _ = row.measure(*SOME)
    assert report["ok"], report["error"]
    server.kill()
    report, took_s = row.measure(*SOME)
    assert "does not answer" in report["error"], report["error"]
    assert took_s < 30.0
    row.server()
    report, _ = row.measure(*SOME)
    assert report["ok"], report["error"]


@contextmanager
def downloading(row: Row) -> Iterator[Process]:
    """A download that is on its way."""
    process = Process("download", row.command("--download", "3 MiB"), row.directory)
    try:
        time.sleep(1.0)
        assert process.exit_code is None, process.tail()
        yield process
    finally:
        process.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_its_end_is_told_to_both_sides(row: Row, number: signal.Signals) -> None:
    row.server()
    first, second = row.two()
    with downloading(row) as client:
        first.signal(number)
        assert first.wait() == 0
        assert client.wait(10.0) == 1
        report = json.loads(client.out.read_text())
        assert "the proxy is being stopped" in report["error"], report["error"]
    row.proxy("first")
    report, _ = row.measure(*SOME)
    assert report["ok"], report["error"]
    assert second.exit_code is None


def test_garbage_at_its_ports_disturbs_nobody(row: Row) -> None:
    row.server()
    first, second = row.two()
    with downloading(row) as client:
        for where, to in ((row.link.terminal, FIRST), (row.link.terminal, SECOND)):
            address, port = to.split(":")
            with where.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(3000):
                    said = os.urandom(number % 1400)
                    match number % 4:
                        case 0:  # an Initial of version 1 that is none
                            said = b"\xc0\x00\x00\x00\x01\x08" + os.urandom(8) + b"\x00\x00\x44\x9e" + os.urandom(1180)
                        case 1:  # a short header
                            said = b"\x40" + said
                        case 2:  # a version that nobody speaks
                            said = b"\xc0\x1a\x2a\x3a\x4a\x08" + os.urandom(1200)
                    sender.sendto(said, (address, int(port)))
                    if number % 100 == 0:
                        time.sleep(0.01)
        assert client.wait() == 0, client.tail()
        assert json.loads(client.out.read_text())["received_bytes"] == 3 << 20
    assert first.exit_code is None
    assert second.exit_code is None
