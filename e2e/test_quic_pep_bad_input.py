"""`bentpipe quic-pep` and what clients, next hops and the machine do to it: what is told, and that nothing is left."""

import datetime
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from conversation import eventually
from emulated import GATEWAY, TERMINAL
from test_quic_pep_faults import FIRST, SOME, Row, row

__all__ = ["row"]

TROUBLE = Path(__file__).parent / "clients" / "aioquic_trouble.py"
FILES = Path(__file__).parent / "clients" / "aioquic_files.py"
PATIENCE_S = 12.0
"""How long a next hop may be silent (docs/pep.md)."""
LATE_S = 6.0
"""What may be added to anything on a machine that does other work too."""
GROWTH_MIB = 24
"""What an allocator may keep of what was returned to it."""
ROUNDS = 4
"""After so many of the same it keeps no more."""
SILENT, MOST, STREAMS = 90, 100, 10_000
"""Clients that say nothing, connections that the server takes, and streams that are given up."""
Key = ec.EllipticCurvePrivateKey


class Authority:
    """One that a proxy trusts, and what it signs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key: Key | None = None
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate, self.key_file = self.issue("authority", ca=True)

    def issue(self, name: str, *, ca: bool = False, alone: bool = False, ends_in_days: int = 30) -> tuple[Path, Path]:
        """A certificate with its key; `alone` by nobody but itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        by_itself = self.key is None or alone
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if by_itself else self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=ends_in_days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(key if self.key is None or alone else self.key, hashes.SHA256())
        )
        if self.key is None:
            self.key = key
        files = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        return files


class GrownError(AssertionError):
    """The proxy holds more memory than before."""


@contextmanager
def nothing_left(proxy: Process) -> Iterator[None]:
    """Descriptors and memory of the proxy are afterwards what they were, give or take the allocator's."""
    descriptors, resident = open_files(proxy), proxy.resident_bytes()
    yield
    assert proxy.exit_code is None, proxy.tail()
    eventually(lambda: open_files(proxy) <= descriptors, "its descriptors are closed")
    grown = (proxy.resident_bytes() - resident) >> 20
    if grown > GROWTH_MIB:
        raise GrownError(f"{grown} MiB more than before")


def settles(proxy: Process, one_round: Callable[[], None]) -> None:
    """As above, of one of a few rounds: of a peak the allocator keeps memory once, and a leak is in each."""
    for left in reversed(range(ROUNDS)):
        try:
            with nothing_left(proxy):
                one_round()
        except GrownError:
            if not left:
                raise
        else:
            return


def open_files(process: Process) -> int:
    """Its descriptors."""
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def works(row: Row, name: str = "perf.test") -> None:
    """A client is served."""
    report, _ = row.measure(*SOME, name=name)
    assert report["ok"], report["error"]


def serves(row: Row, count: int) -> bool:
    """Whether so many clients at once are served."""
    report, _ = row.measure("--download", "1 kB", "--connections", str(count))
    return bool(report["ok"])


def trouble(row: Row, what: str, count: int, seconds: float) -> Process:
    """Clients of another stack that misbehave."""
    address, port = FIRST.split(":")
    ca = row.config("first").with_suffix(".ca.pem")
    argv: list[str | Path] = [sys.executable, TROUBLE, what, address, port, ca, "perf.test", str(count), str(seconds)]
    clients = Process(what, row.link.terminal.command(argv), row.directory)
    row.running.append(clients)
    return clients


@pytest.mark.long
@pytest.mark.parametrize("mode", ["default", "h3-capable"])
def test_a_next_hop_that_cannot_be_had_is_told_of(row: Row, mode: str) -> None:
    authority = Authority(row.directory)
    shown = {
        "good.test": authority.issue("good.test"),
        "self-signed.test": authority.issue("self-signed.test", alone=True),
        "expired.test": authority.issue("expired.test", ends_in_days=-1),
        "other.test": authority.issue("somebody.test"),
    }
    at = {name: f"{GATEWAY}:{4440 + number}" for number, name in enumerate(shown)}
    for name, (certificate, key) in shown.items():
        identity: list[str | Path] = ["--certificate", certificate, "--key", key]
        argv: list[str | Path] = [host.binary(), "perf", "server", "--listen", at[name], *identity]
        row.start(name, row.link.gateway.command(argv), "perf ")
    files = [str(file) for file in authority.issue("files.test")]
    argv = [sys.executable, FILES, "server", *files, row.directory, GATEWAY, "4450"]
    row.start("files", row.link.gateway.command(argv), "")
    closing = [str(file) for file in authority.issue("closing.test")]
    argv = [sys.executable, TROUBLE, "closing", GATEWAY, "4451", *closing]
    row.start("closing", row.link.gateway.command(argv), "listening")
    at |= {"files.test": f"{GATEWAY}:4450", "closing.test": f"{GATEWAY}:4451"}
    # A closed port, which ICMP tells of; an address that nobody has; no route; no such name.
    at |= {"closed.test": f"{GATEWAY}:4999", "nobody.test": "10.98.0.77:4433", "no-route.test": "192.0.2.1:4433"}
    at |= {"no-name.test": "nobody.invalid:4433"}
    names = [f'[names."{name}"]\naddress = "{address}"' for name, address in at.items()]
    proxy = row.proxy("first", f'listen = "{FIRST}"', f'mode = "{mode}"', f'ca = "{authority.certificate}"', *names)
    untrusted, silent = (0x6273, "is not to be trusted", LATE_S), (0x6272, "does not answer", PATIENCE_S + LATE_S)
    told = {
        "self-signed.test": untrusted,
        "expired.test": (0x6273, "expired", LATE_S),
        "other.test": (0x6273, "not valid for name", LATE_S),
        "files.test": (0x6274, "does not speak the application protocol", LATE_S),
        "closing.test": (0x6278, "refused the connection", LATE_S),
        "closed.test": silent,
        "nobody.test": silent,
        "no-route.test": silent,
        "no-name.test": (0x6272, "does not resolve", PATIENCE_S + LATE_S),
        "unlisted.test": (0x6271, "knows no way to", LATE_S),
    }
    works(row, "good.test")
    with nothing_left(proxy):
        began = time.monotonic()
        clients = {
            name: Process(f"to-{name}", row.command(*SOME, "--timeout", "60 s", name=name), row.directory)
            for name in told
        }
        try:
            for name, (code, said, within_s) in sorted(told.items(), key=lambda item: item[1][2]):
                assert clients[name].wait(within_s) == 1
                assert time.monotonic() - began <= within_s, name
                error = json.loads(clients[name].out.read_text())["error"]
                assert said in error, error
                assert f"(code {code})" in error, error
        finally:
            for client in clients.values():
                client.stop()
        works(row, "good.test")


@pytest.mark.long
@pytest.mark.parametrize("what", ["silent", "half"])
def test_clients_that_say_nothing_leave_nothing_behind(row: Row, what: str) -> None:
    row.server("--max-connections", str(MOST))
    proxy = row.one()
    # As many at once as there will be: what that takes, the allocator keeps.
    assert all(serves(row, SILENT) for _ in range(3))

    def one_round() -> None:
        clients = trouble(row, what, SILENT, 8.0)
        time.sleep(4.0)
        works(row)
        assert clients.wait(60.0) == 0, clients.tail()
        assert clients.out.read_text() == "done\n"
        # The proxy's connections to the server end with theirs, at the latest when those are idle for too long.
        # It is asked with few, so that there are never many more at once than before.
        eventually(lambda: serves(row, MOST - SILENT + 5), "the server has room again", 60.0)
        eventually(lambda: serves(row, SILENT), "for as many as before")

    settles(proxy, one_round)


@pytest.mark.long
def test_ten_thousand_streams_that_are_given_up_leave_nothing_behind(row: Row) -> None:
    row.server()
    proxy = row.one()
    works(row)
    with nothing_left(proxy):
        client = trouble(row, "streams", STREAMS, 1.0)
        assert client.wait(240.0) == 0, client.tail()
        # The connection outlives them all: nobody has closed it.
        assert client.out.read_text() == "done\n"
        works(row)


def test_a_version_that_nobody_speaks_is_answered_with_those_that_are(row: Row) -> None:
    row.server()
    proxy = row.one()
    works(row)
    address, port = FIRST.split(":")
    destination, source = bytes(range(8)), bytes(range(8, 13))
    ids = bytes([len(destination)]) + destination + bytes([len(source)]) + source
    with nothing_left(proxy), row.link.terminal.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(LATE_S)
        for version in (b"\x1a\x2a\x3a\x4a", b"\xff\x00\x00\x1d", b"\x51\x30\x34\x36"):
            said = b"\xc0" + version + ids
            client.sendto(said + bytes(1200 - len(said)), (address, int(port)))
            answer = client.recv(2000)
            # RFC 9000, section 17.2.1: version 0, the client's connection IDs the other way round, and the versions.
            assert answer[0] & 0x80
            assert answer[1:5] == bytes(4)
            swapped = bytes([len(source)]) + source + bytes([len(destination)]) + destination
            assert answer[5 : 5 + len(swapped)] == swapped
            versions = answer[5 + len(swapped) :]
            assert b"\x00\x00\x00\x01" in [versions[at : at + 4] for at in range(0, len(versions), 4)]
        works(row)


class Nat:
    """A NAT before the proxy that forgets its bindings when it is told to: the client then has another port."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.inside = row.link.terminal.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind((TERMINAL, 4600))
        self.ports: list[int] = []
        self.ended = threading.Event()
        self.rebind()
        self.thread = threading.Thread(target=self._forward)
        self.thread.start()

    def rebind(self) -> None:
        """Another port."""
        address, port = FIRST.split(":")
        outside = self.row.link.terminal.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outside.connect((address, int(port)))
        self.ports.append(outside.getsockname()[1])
        self.outside = outside

    def _forward(self) -> None:
        client = None
        while not self.ended.is_set():
            outside = self.outside
            for ready in select.select([self.inside, outside], [], [], 0.1)[0]:
                if ready is self.inside:
                    data, client = self.inside.recvfrom(65536)
                    outside.send(data)
                elif client is not None:
                    self.inside.sendto(outside.recv(65536), client)

    def end(self) -> None:
        """Forward nothing more."""
        self.ended.set()
        self.thread.join()
        self.inside.close()


@pytest.mark.parametrize("way", ["--download", "--upload"])
def test_a_client_whose_address_changes_goes_on(row: Row, way: str) -> None:
    row.server()
    first, second = row.two()
    works(row)
    nat = Nat(row)
    try:
        with nothing_left(first):
            command = row.command(way, "6 MiB")
            through = [word if word != FIRST else f"{TERMINAL}:4600" for word in command]
            client = Process("moving", through, row.directory)
            for _ in range(3):
                time.sleep(0.7)
                assert client.exit_code is None, client.tail()
                nat.rebind()
            # It is waiting for something, and found again when it sends its keep-alive of 5 s: at the first, or at one
            # behind it, where a busy machine lets the check of its new address time out.
            assert client.wait(60.0) == 0, client.log.read_text()
            report = json.loads(client.out.read_text())
            assert report["received_bytes" if way == "--download" else "sent_bytes"] == 6 << 20
            assert len(set(nat.ports)) == 4
    finally:
        nat.end()
    assert second.exit_code is None


# Odd and even.
@pytest.mark.parametrize("free", [0, 1])
def test_without_descriptors_clients_are_told_and_served_later(row: Row, free: int) -> None:
    row.server()
    names = f'[names."named.test"]\naddress = "localhost:4999"\n[names."perf.test"]\naddress = "{GATEWAY}:4433"'
    proxy = row.proxy("first", f'listen = "{FIRST}"', f'ca = "{row.certificate}"', names)
    works(row)
    files = open_files(proxy)
    subprocess.run(["prlimit", f"--pid={proxy.pid}", f"--nofile={files + free}:1024"], check=True)
    # Connections take none: one socket has them all. Names do.
    clients = [Process(f"few-{number}", row.command(*SOME), row.directory) for number in range(8)]
    assert [client.wait(60.0) for client in clients] == [0] * len(clients), clients[0].tail()
    report, took_s = row.measure(*SOME, "--timeout", "60 s", name="named.test")
    assert "(code 25202)" in report["error"], report["error"]
    assert took_s <= PATIENCE_S + LATE_S
    if free == 0:
        assert "localhost:4999 does not resolve" in report["error"], report["error"]
        assert "Too many open files" in report["error"], report["error"]
    subprocess.run(["prlimit", f"--pid={proxy.pid}", "--nofile=1024:1024"], check=True)
    report, _ = row.measure(*SOME, "--timeout", "60 s", name="named.test")
    assert "localhost:4999 does not answer" in report["error"], report["error"]
    works(row)
    assert proxy.exit_code is None
    eventually(lambda: open_files(proxy) <= files + 2, "its descriptors are closed")


def test_too_few_descriptors_to_begin_with_are_an_error(row: Row) -> None:
    row.server()
    row.one().stop()
    few: list[str | Path] = ["prlimit", "--nofile=5:5", host.binary(), "quic-pep", "--config", row.config("first")]
    done = subprocess.run(row.link.terminal.command(few), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode not in (0, 101), done.stderr
    assert "5 files may be open" in done.stderr, done.stderr
