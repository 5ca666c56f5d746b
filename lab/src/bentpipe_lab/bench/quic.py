"""QUIC without a link against the clock: `bentpipe perf` and `quic-pep` beside a plain loop over the QUIC library.

Everything talks over the loopback device. The plain loop is `crates/bentpipe/examples/plain_loop.rs`. A proxy has two
connections, so it is held against two plain loops that run at the same time.
"""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bentpipe_lab.bench import cost
from bentpipe_lab.bench.carry import ROUNDS, Carried
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.net.content import MIB
from bentpipe_lab.net.process import Process

GIGABYTES = 1
RATIO = 1.2
"""What `perf` may cost beside the plain loop, and a proxy beside two."""
LOOP, PERF, PEP = "127.0.0.1:4441", "127.0.0.1:4442", "127.0.0.1:4443"
NAME = "perf.test"
PEER = "plain loop"
CLIENTS, AT_ONCE = 500, 50
MEMORY_MIB = 256
"""What the proxy may hold for its clients."""
NOTHING_YET = 30
"""Characters of a row of `bentpipe perf` that say what was received."""
SETTLED_S = 3.0
"""A process whose memory has not grown for so long holds what it will."""
SETTLE_MOST_S = 60.0

Argv = Sequence[str | Path]


def quic_speed(directory: Path) -> list[Quantity]:
    """throughput and processor time of perf and quic-pep without a link, beside a plain loop over the QUIC library."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        loop, fetch = _plain_loop(stack, directory)
        plain = _best([loop], fetch)
        twice = _best([loop], fetch, fetch)
        server = _perf_server(stack, directory)
        perf = _best([server], _perf_client(PERF, _certificate(directory)))
        proxy = _proxy(stack, directory)
        split = _best([server, proxy], _perf_client(PEP, _authority(directory)))
    return [
        *_beside("perf", perf, PEER, plain),
        *_beside("quic-pep", split, f"two {PEER}s", twice),
    ]


def quic_pep_memory(directory: Path) -> list[Quantity]:
    """memory of quic-pep with 500 client connections that download, and when they are not read any more."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        _perf_server(stack, directory)
        proxy = _proxy(stack, directory)
        before = proxy.resident_bytes()
        argv = [*_perf_client(PEP, _authority(directory), "600 s"), "--connections", str(AT_ONCE)]
        programs = [_reading(stack, f"clients-{number}", argv, directory) for number in range(CLIENTS // AT_ONCE)]
        reading = _settled(proxy)
        for clients in programs:
            clients.signal(signal.SIGSTOP)
        stopped = _settled(proxy)
    return [
        Quantity(f"quic-pep memory, {CLIENTS} clients that read", (reading - before) / MIB, "MiB"),
        Quantity(
            f"quic-pep memory beyond that, {CLIENTS} clients that stop reading", (stopped - reading) / MIB, "MiB",
            "its `memory`", MEMORY_MIB, most=MEMORY_MIB,
        ),
    ]  # fmt: skip


def _beside(what: str, ours: Carried, peer: str, theirs: Carried) -> list[Quantity]:
    (cpu,), (their_cpu,) = ours.cpu_s_per_gb, theirs.cpu_s_per_gb
    return [
        Quantity(f"{what} throughput", ours.gbit_s, "Gbit/s", peer, theirs.gbit_s, least=theirs.gbit_s / RATIO),
        Quantity(f"{what} CPU, all ends", cpu, "s/GB", peer, their_cpu, most=their_cpu * RATIO),
    ]


def _best(serving: Sequence[Process], *fetching: Argv) -> Carried:
    """The fastest of some rounds: what else runs on the machine can only slow a round down."""
    return max((_carry(serving, fetching) for _ in range(ROUNDS)), key=lambda carried: carried.gbit_s)


def _carry(serving: Sequence[Process], fetching: Sequence[Argv]) -> Carried:
    """Run clients at once to their ends: what each fetched in the time that all took, and what all ends spent."""
    before = sum(process.cpu_seconds() for process in serving)
    began = time.monotonic()
    with ThreadPoolExecutor(len(fetching)) as pool:
        clients = list(pool.map(cost.of, fetching))
    took = time.monotonic() - began
    spent = sum(process.cpu_seconds() for process in serving) - before
    return Carried(GIGABYTES, took, [spent + sum(each.user_s + each.system_s for each in clients)])


def _plain_loop(stack: ExitStack, directory: Path) -> tuple[Process, Argv]:
    """Its server, and the command of its client."""
    program = host.binary().parent / "examples" / "plain_loop"
    if not program.exists():
        raise ProgramError(f"{program} is missing: cargo build --release --locked --example plain_loop")
    certificate = directory / "loop.pem"
    server = _started(stack, "plain-loop", [program, "server", LOOP, certificate], directory, "ready")
    return server, [program, "client", LOOP, certificate, str(GIGABYTES * 10**9)]


def _perf_server(stack: ExitStack, directory: Path) -> Process:
    argv: Argv = [
        host.binary(), "perf", "server", "--listen", PERF, "--name", NAME,
        "--certificate-out", _certificate(directory), "--max-connections", str(2 * CLIENTS),
    ]  # fmt: skip
    return _started(stack, "perf-server", argv, directory, "perf server on")


def _perf_client(address: str, ca: Path, amount: str = f"{GIGABYTES} GB") -> Argv:
    return [host.binary(), "perf", "client", address, "--ca", ca, "--name", NAME, "--download", amount]


def _proxy(stack: ExitStack, directory: Path) -> Process:
    """A proxy between the client and the server of `perf`, both on the ground."""
    configuration = directory / "pep.toml"
    ground = 'controller = "cubic"\ninitial_window = 10\nexpected_rate = "10 Gbit/s"\nexpected_rtt = "5 ms"\n'
    configuration.write_text(
        f'listen = "{PEP}"\nnext = {{ address = "{PERF}" }}\nca = "{_certificate(directory).absolute()}"\n'
        f'memory = "{MEMORY_MIB} MiB"\n[towards_clients]\n{ground}[towards_next]\n{ground}'
    )
    if not _authority(directory).exists():
        cost.of([host.binary(), "quic-pep", "init", "--config", configuration])
    argv: Argv = [host.binary(), "quic-pep", "--config", configuration]
    return _started(stack, "quic-pep", argv, directory, "quic-pep: listening on")


def _reading(stack: ExitStack, name: str, argv: Argv, directory: Path) -> Process:
    """Clients that have begun to receive."""
    clients = Process(name, argv, directory)
    stack.callback(clients.kill)
    clients.wait_line("      seconds")
    while " 0 B " in clients.wait_line(" ")[:NOTHING_YET]:
        pass  # rows of seconds in which nothing has arrived
    return clients


def _certificate(directory: Path) -> Path:
    return directory / "server.pem"


def _authority(directory: Path) -> Path:
    """What `quic-pep init` makes beside the configuration."""
    return directory / "pep.ca.pem"


def _started(stack: ExitStack, name: str, argv: Argv, directory: Path, says: str) -> Process:
    process = Process(name, argv, directory)
    stack.callback(process.stop)
    process.wait_line(says)
    return process


def _settled(process: Process) -> int:
    """The most memory that a process has had when it has not had more for a while, bytes."""
    most, grown = process.resident_bytes(), time.monotonic()
    end = grown + SETTLE_MOST_S
    while time.monotonic() < min(grown + SETTLED_S, end):
        time.sleep(0.1)
        if (now := process.resident_bytes()) > most + MIB:
            most, grown = now, time.monotonic()
    return most
