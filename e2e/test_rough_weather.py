"""Rough weather: both ends are killed, stopped, moved, flooded and starved while hosts transfer.

After each blow: every transfer has ended whole or by reset and none is stuck; transfers succeed again; nothing of
what the hosts said has left the terminal outside the tunnel; memory is within its bound, as the kernel counts it;
and no rule, socket, descriptor or flood of log lines is left behind.

`make test-long` strikes each blow once, `make rough` (BENTPIPE_ROUGH_S seconds, BENTPIPE_ROUGH_SEED) at random.
"""

import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import BLACKHOLE4, SATELLITE, Topology
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe, start_bentpipe
from conversation import eventually
from memory import ends, held_mib
from traffic import MARK, STUCK_S, Server, Traffic, transfer

ROUGH_S = float(os.environ.get("BENTPIPE_ROUGH_S", "0"))
SEED = int(os.environ.get("BENTPIPE_ROUGH_SEED", "1"))
HOSTS = 6
MEMORY_MIB = 256
"""The configuration's `memory`, of which the kernel may hold half as much again, and the program itself needs some."""
RESIDENT_MIB = MEMORY_MIB * 3 // 2 + 64
LINES_A_SECOND = 40
"""More lines of log than this are a flood, at the level that people have on."""
MALFORMED = 1_000_000 if ROUGH_S else 20_000
"""Datagrams of a flood."""
IDLE_FLOWS = 500
WAKE_UPS_A_SECOND = 10
"""Of each end, with so many flows that say nothing."""
IDLE_S = 10
SPARE = 4
"""Descriptors that an end may have open beside those of its start: the path file, a name's socket."""
ETH_P_ALL = 3
PACKET_OUTGOING = 4


class Watch:
    """A capture at the terminal's device towards the satellite: what leaves, and must be the tunnel's."""

    def __init__(self, path: Topology) -> None:
        self.strays: list[bytes] = []
        self.packets = 0
        self._end = threading.Event()
        with path.terminal.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.bind(("sat0", ETH_P_ALL))
        self._socket.settimeout(0.2)
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.is_set():
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(1 << 16)
            except OSError:
                # Nothing was sent for a while, or the device is down: nothing leaves by it.
                continue
            if kind != PACKET_OUTGOING:
                continue
            self.packets += 1
            if MARK in packet or not is_tunnel(packet):
                self.strays.append(packet[:120])

    def stop(self) -> list[bytes]:
        """What left outside the tunnel."""
        self._end.set()
        self._thread.join()
        self._socket.close()
        return self.strays


def is_tunnel(packet: bytes) -> bool:
    """UDP to the gateway's port, or what the machine says for itself: ICMP, multicast."""
    version = packet[0] >> 4
    if version == 4:
        protocol, at, destination = packet[9], (packet[0] & 15) * 4, socket.inet_ntop(socket.AF_INET, packet[16:20])
        if protocol == socket.IPPROTO_UDP:
            return destination == SATELLITE.far4 and int.from_bytes(packet[at + 2 : at + 4]) == GATEWAY_PORT
        return protocol in (socket.IPPROTO_ICMP, socket.IPPROTO_IGMP)
    return packet[24] == 0xFF or packet[6] == socket.IPPROTO_ICMPV6


@contextmanager
def neighbours() -> Iterator[None]:
    """A program on each processor that never waits."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file system of its own for what the ends keep."""
    place = tmp_path / "state"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=True)
    monkeypatch.setenv("STATE_DIRECTORY", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def gateway_killed(tunnel: Bentpipe) -> None:
    tunnel.gateway.kill()
    tunnel.start_gateway()


def terminal_killed(tunnel: Bentpipe) -> None:
    tunnel.terminal.kill()
    time.sleep(0.5)
    tunnel.start_terminal()


def both_restarted(tunnel: Bentpipe) -> None:
    assert tunnel.terminal.stop() == 0
    assert tunnel.gateway.stop() == 0
    tunnel.start_gateway()
    tunnel.start_terminal()


def hung_up(tunnel: Bentpipe) -> None:
    """SIGHUP reloads; the others mean nothing."""
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        tunnel.gateway.signal(number)
        tunnel.terminal.signal(number)


def suspended(tunnel: Bentpipe) -> None:
    """As a machine that sleeps, or whose clock steps: time has passed, and nothing was done in it."""
    for end in (tunnel.gateway, tunnel.terminal):
        end.signal(signal.SIGSTOP)
        time.sleep(4)
        end.signal(signal.SIGCONT)


def moved(tunnel: Bentpipe) -> None:
    """The terminal has another address towards the gateway, and then the gateway is killed."""
    address = f"10.77.1.{random.Random(time.monotonic_ns()).randrange(10, 250)}"  # noqa: S311
    tunnel.path.terminal.ip("address", "add", f"{address}/32", "dev", "sat0")
    tunnel.path.gateway.ip("route", "replace", f"{address}/32", "dev", "sat0")
    tunnel.path.terminal.ip("route", "replace", f"{SATELLITE.far4}/32", "dev", "sat0", "src", address)
    time.sleep(1)
    gateway_killed(tunnel)


def flooded(tunnel: Bentpipe) -> None:
    """Garbage, and beginnings of handshakes, at the gateway's port."""
    dice = random.Random(SEED)  # noqa: S311
    with tunnel.path.terminal.socket(kind=socket.SOCK_DGRAM) as sender:
        for _ in range(MALFORMED):
            data = bytearray(dice.randbytes(dice.choice([1, 20, 40, 1200])))
            data[:5] = bytes([0xC0 | dice.randrange(64), 0, 0, 0, dice.choice([0, 1, 2])])
            sender.sendto(data, (SATELLITE.far4, GATEWAY_PORT))


def without_descriptors(tunnel: Bentpipe) -> None:
    """Neither end can open another descriptor for a while."""
    for end in (tunnel.gateway, tunnel.terminal):
        before = resource.prlimit(end.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(end.pid, resource.RLIMIT_NOFILE, (descriptors(end), before[1]))
        time.sleep(2)
        resource.prlimit(end.pid, resource.RLIMIT_NOFILE, before)


def disk_full(tunnel: Bentpipe) -> None:
    """Nothing more can be written where the ends keep what they know of the path."""
    fill = Path(os.environ["STATE_DIRECTORY"]) / "fill"
    with fill.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    both_restarted(tunnel)
    fill.unlink(missing_ok=True)


def names_that_hang(tunnel: Bentpipe) -> None:
    """Many requests, by SOCKS5, for names whose name server says nothing."""
    servers = tunnel.hosts.with_name("resolv.conf")
    before = servers.read_text()
    servers.write_text(f"nameserver {BLACKHOLE4}\n")
    try:
        ask_for_names(tunnel)
    finally:
        servers.write_text(before)


def ask_for_names(tunnel: Bentpipe) -> None:
    """Ask for a hundred names at once, and go away after a second."""
    sockets = []
    for number in range(100):
        name = f"hangs-{number}.example".encode()
        ask = tunnel.path.terminal.socket()
        ask.settimeout(STUCK_S)
        ask.connect(("127.0.0.1", 1080))
        ask.sendall(b"\x05\x01\x00" + b"\x05\x01\x00\x03" + bytes([len(name)]) + name + (80).to_bytes(2))
        sockets.append(ask)
    time.sleep(1)
    for ask in sockets:
        ask.close()


def clock_stepped(tunnel: Bentpipe) -> None:
    """The terminal starts with clocks that are a day ahead since boot, and with what it kept from the future."""
    assert tunnel.terminal.stop() == 0
    kept = Path(os.environ["STATE_DIRECTORY"]) / "terminal.paths.toml"
    if kept.exists():
        kept.write_text(re.sub(r"\b20\d\d-", "2099-", kept.read_text()))
    ahead = ["unshare", "--time", "--monotonic", "86400", "--boottime", "86400"]
    argv: list[str | Path] = [*ahead, host.binary(), "terminal", "--config", tunnel.terminal_config.absolute()]
    tunnel.terminal = tunnel.path.start("terminal", tunnel.path.terminal, argv)
    tunnel.terminal.wait_line("ready")
    tunnel.terminal.wait_line("session: up")


BLOWS: tuple[Callable[[Bentpipe], None], ...] = (
    hung_up,
    gateway_killed,
    flooded,
    without_descriptors,
    names_that_hang,
    moved,
    terminal_killed,
    suspended,
    disk_full,
    clock_stepped,
)


@pytest.mark.long
def test_rough_weather(path: Topology, state: Path) -> None:
    assert state.is_dir()
    server = Server(path)
    tunnel = start_bentpipe(path)
    watch = Watch(path)
    before = {end.name: (descriptors(end), lines(end)) for end in ends(tunnel)}
    began = time.monotonic()
    with neighbours():
        for blow in blows(began):
            strike(tunnel, server, blow)
    seconds = time.monotonic() - began
    server.close()
    for end in ends(tunnel):
        least, said = before[end.name]
        eventually(partial(closed, end, least + SPARE), f"the descriptors of {end.name} are closed")
        assert lines(end) - said < LINES_A_SECOND * seconds + 1000, f"{end.name} floods its log"
    assert tunnel.terminal.stop() == 0
    strays = watch.stop()
    path.terminal.run(host.binary(), "terminal", "release", "--config", tunnel.terminal_config)
    assert "bentpipe" not in path.terminal.run("nft", "list", "ruleset"), "rules are left"
    assert tunnel.gateway.stop() == 0
    assert not strays, f"{len(strays)} of {watch.packets} packets left outside the tunnel, the first {strays[0]!r}"


def test_idle_flows_wake_nobody(own_tunnel: Bentpipe) -> None:
    """What wakes an end without traffic: keep-alive, the path file, a look whether the gateway is heard."""
    server = Server(own_tunnel.path)
    idle = []
    for _ in range(IDLE_FLOWS):
        connection = own_tunnel.path.client.socket()
        connection.settimeout(STUCK_S)
        connection.connect(server.address)
        idle.append(connection)
    time.sleep(10)
    before = [wake_ups(end) for end in ends(own_tunnel)]
    time.sleep(IDLE_S)
    after = [wake_ups(end) for end in ends(own_tunnel)]
    for connection in idle:
        connection.close()
    server.close()
    for end, first, last in zip(ends(own_tunnel), before, after, strict=True):
        assert last - first < WAKE_UPS_A_SECOND * IDLE_S, f"{end.name}: {(last - first) / IDLE_S} a second"


def wake_ups(end: Process) -> int:
    """How often the threads of an end have waited for something until now."""
    told = []
    for thread in Path(f"/proc/{end.pid}/task").iterdir():
        # One may end meanwhile: as a file that is not there, or as one without a process behind it.
        with suppress(FileNotFoundError, ProcessLookupError):
            told += (thread / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in told if line.startswith("voluntary"))


def blows(began: float) -> Iterator[Callable[[Bentpipe], None]]:
    """Each once; then at random until the time is over."""
    yield from BLOWS
    dice = random.Random(SEED)  # noqa: S311 (a test's course, not a secret)
    while time.monotonic() - began < ROUGH_S:
        yield dice.choice(BLOWS)


def strike(tunnel: Bentpipe, server: Server, blow: Callable[[Bentpipe], None]) -> None:
    """Strike while hosts transfer; then see that all is well."""
    traffic = Traffic(tunnel.path, server, HOSTS, SEED)
    slow: list[str] = []
    reader = threading.Thread(target=lambda: slow.append(transfer(tunnel.path, server, b"d", 3, 200_000, 0.05)))
    reader.start()
    time.sleep(0.5)
    try:
        blow(tunnel)
        for end in ends(tunnel):
            assert end.exit_code is None, f"{end.name} has ended: {end.tail()}"
            held = held_mib(tunnel, end)
            assert held < RESIDENT_MIB, f"{blow.__name__}: {end.name} holds {held} MiB"
        eventually(
            lambda: transfer(tunnel.path, server, b"d", 1, 20_000) == "whole", f"a transfer after {blow.__name__}"
        )
    finally:
        outcomes = traffic.stop()
        reader.join()
    outcomes[slow[0]] += 1
    assert not outcomes["wrong"], f"{blow.__name__}: {outcomes}"
    assert not outcomes["stuck"], f"{blow.__name__}: {outcomes}"
    assert outcomes["whole"], f"{blow.__name__}: {outcomes}"


def descriptors(end: Process) -> int:
    """What an end has open."""
    return len(list(Path(f"/proc/{end.pid}/fd").iterdir()))


def closed(end: Process, most: int) -> bool:
    """Whether an end has at most so many descriptors open."""
    return descriptors(end) <= most


def lines(end: Process) -> int:
    """Lines of its log."""
    return end.log.read_bytes().count(b"\n")
