"""The emulator seen from outside: by the kernel's counters at both devices and by captures with its time stamps.

Nothing here asks the emulator about itself except for its certificate. The load is `bentpipe_lab.bench.load`, the
emulator is confined to processor 0 and everything else to the others.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.bench import load
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.net import capture, host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.packet import PACKET
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import Topology, topology

SCENARIO = """\
name = "bench"
title = "A link for the benchmark"
source = "chosen for the benchmark"
seed = 1

[forward]
rate = "{rate} Mbit/s"
delay = "{delay} ms"
loss = "{loss} %"
queue = "20 MB"

[return]
rate = "1 Gbit/s"
delay = "{delay} ms"
queue = "20 MB"
"""
DELAY_MS = 20
LINKS = 64
Z99 = 2.5758
"""Two-sided 99 % of the normal distribution."""
SETTLE_S = 0.5
PAIRS = 4


@dataclass
class Emulation:
    """An emulator that runs, its links' devices `lk1`, `lk2`, ... in the terminal's and the gateway's places."""

    path: Topology
    process: Process
    certificate_file: Path
    links: int

    def packets(self, where: Namespace, way: str) -> list[int]:
        """Packets that each device has received (`rx`) or sent (`tx`) so far, by the kernel's counters."""
        statistics_of = {link["ifname"]: link for link in json.loads(where.ip("-json", "-statistics", "link", "show"))}
        return [int(statistics_of[_device(number)]["stats64"][way]["packets"]) for number in self.numbers]

    @property
    def numbers(self) -> range:
        """The links' numbers."""
        return range(1, self.links + 1)

    def load(self, mbit_s: float, seconds: float, batch: int = 1) -> int:
        """Send from the gateway to the terminal until the last packet is through; return how many there were."""
        targets = [_address(number, 1) for number in self.numbers]
        command = [sys.executable, "-m", "bentpipe_lab.bench.load", str(mbit_s), str(seconds), str(batch), *targets]
        printed = self.path.gateway.run("taskset", "--cpu-list", _others(), *command)
        time.sleep(SETTLE_S)
        return int(printed.removeprefix("sent "))

    def certificate(self) -> dict[str, Any]:
        """End the emulation and read what it says of its own timing."""
        self.process.stop()
        certificate: dict[str, Any] = json.loads(self.certificate_file.read_text())
        return certificate


@dataclass(frozen=True)
class Counted:
    """What a load amounted to."""

    sent: int
    """Packets that the sender gave to the kernel."""
    entered: int
    """Packets that the emulator took from the kernel, by the kernel's counter."""
    received: int
    """Packets that came out at the other device, by the kernel's counter."""
    seconds: float
    """How long the sender sent."""
    cpu_seconds: float
    """Processor time that the emulator used meanwhile."""


def emulator_outside(directory: Path) -> list[Quantity]:
    """the emulator on one core, by kernel counters and captures at both ends."""
    quantities: list[Quantity] = []
    with topology(directory, web_server=False) as path:
        for measure in (gigabit, punctuality, light_load, rate, losses, many_links, cost_of_records):
            quantities += measure(path)
    return quantities


def gigabit(path: Topology) -> list[Quantity]:
    """1 Gbit/s of 1500-byte packets one way."""
    with _emulation(path, "gigabit", rate=2000) as emulation:
        ran = _counted(emulation, 1050, 5.0, batch=20)
    mbit_s = ran.received * PACKET * 8 / ran.seconds / 1e6
    return [
        Quantity("1 Gbit/s one way, packets of 1500 bytes", mbit_s, "Mbit/s", least=1000),
        Quantity("1 Gbit/s one way, loss", max(1 - ran.received / ran.sent, 0) * 100, "%", most=0.1),
        Quantity("1 Gbit/s one way, emulator CPU", ran.cpu_seconds / ran.seconds, "cores"),
    ]


def punctuality(path: Topology) -> list[Quantity]:
    """100 Mbit/s: lateness by the certificate, and by captures."""
    with _emulation(path, "punctuality", rate=120) as emulation:
        errors = _delay_errors(emulation, 120e6, 100, 8.0)
        certificate = emulation.certificate()
    late = certificate["links"][0]["directions"][0]["lateness_us"]
    return [
        Quantity("lateness at 100 Mbit/s, p50", late["p50"], "us", most=30),
        Quantity("lateness at 100 Mbit/s, p99", late["p99"], "us", most=200),
        Quantity("delay error at 100 Mbit/s by captures, p50", _quantile(errors, 0.5), "us"),
        Quantity("delay error at 100 Mbit/s by captures, p99", _quantile(errors, 0.99), "us"),
    ]


def light_load(path: Topology) -> list[Quantity]:
    """Few packets: delay beyond the configured delay and serialisation."""
    with _emulation(path, "light-load", rate=20) as emulation:
        errors = _delay_errors(emulation, 20e6, 6, 6.0)
    return [
        Quantity("delay error by captures, mean", statistics.fmean(errors), "us", most=50),
        Quantity("delay error by captures, p50", _quantile(errors, 0.5), "us"),
    ]


def rate(path: Topology) -> list[Quantity]:
    """A saturated link of 20 Mbit/s: bytes between the first and the last packet of ten seconds."""
    configured = 20e6
    with (
        _emulation(path, "rate", rate=20) as emulation,
        capture.capture(path, path.terminal, _device(1), "in", _others()) as arrivals,
    ):
        emulation.load(25, 11.5)
    seen = capture.read(arrivals)
    # From half a second on: the queue is never empty any more.
    begin = next(i for i, packet in enumerate(seen) if packet.at_ns > seen[0].at_ns + 500_000_000)
    end = next(i for i, packet in enumerate(seen) if packet.at_ns > seen[begin].at_ns + 10_000_000_000)
    bits = sum(packet.length for packet in seen[begin + 1 : end + 1]) * 8
    measured = bits / ((seen[end].at_ns - seen[begin].at_ns) / 1e9)
    return [Quantity("rate error over 10 s", abs(measured / configured - 1) * 100, "%", most=0.1)]


def losses(path: Topology) -> list[Quantity]:
    """1 % of more than a hundred thousand packets."""
    chance = 0.01
    with _emulation(path, "losses", rate=1000, loss=100 * chance) as emulation:
        ran = _counted(emulation, 400, 4.0, batch=4)
    width = Z99 * math.sqrt(chance * (1 - chance) / ran.entered)
    return [
        Quantity("loss of 1 %, packets", ran.entered, "packets", least=100_000),
        Quantity(
            "loss of 1 %, share lost", (1 - ran.received / ran.entered) * 100, "%",
            least=100 * (chance - width), most=100 * (chance + width),
        ),
    ]  # fmt: skip


def many_links(path: Topology) -> list[Quantity]:
    """64 links at 2 Mbit/s at once."""
    with _emulation(path, "many-links", links=LINKS, rate=2.5) as emulation:
        before = emulation.packets(path.terminal, "rx")
        seconds = 8.0
        emulation.load(2 * LINKS, seconds)
        after = emulation.packets(path.terminal, "rx")
        certificate = emulation.certificate()
    rates = [(b - a) * PACKET * 8 / seconds / 1e6 for a, b in zip(before, after, strict=True)]
    late = [link["directions"][0]["lateness_us"]["p999"] for link in certificate["links"]]
    return [
        Quantity(f"{LINKS} links at 2 Mbit/s, slowest", min(rates), "Mbit/s", least=1.98),
        Quantity(f"{LINKS} links at 2 Mbit/s, certificate valid", float(certificate["valid"]), "", least=1),
        Quantity(f"{LINKS} links at 2 Mbit/s, worst lateness p99.9", max(late), "us", most=certificate["limit_us"]),
    ]


def cost_of_records(path: Topology) -> list[Quantity]:
    """Records: processor time of each packet with and without, one after the other, the emulator overloaded."""
    costs = []
    for pair in range(PAIRS):
        # What comes first changes, so that a machine that slows down favours neither.
        order = (False, True) if pair % 2 == 0 else (True, False)
        spent = {records: _processor_us(path, records) for records in order}
        costs.append((spent[True] / spent[False] - 1) * 100)
    return [Quantity("cost of records, processor time of a packet", statistics.median(costs), "%", most=3)]


def _processor_us(path: Topology, records: bool) -> float:
    """Processor time of one packet, microseconds, while more comes than the emulator can carry."""
    options = ["--records", str((path.directory / "records.bin").absolute())] if records else []
    with _emulation(path, "records", rate=10_000, options=options) as emulation:
        ran = _counted(emulation, 8000, 2.0, batch=load.MOST_IN_A_BATCH)
    return ran.cpu_seconds / ran.received * 1e6


def _counted(emulation: Emulation, mbit_s: float, seconds: float, batch: int) -> Counted:
    """Load the emulation, and count."""
    path = emulation.path
    cpu = emulation.process.cpu_seconds()
    entered, received = emulation.packets(path.gateway, "tx"), emulation.packets(path.terminal, "rx")
    sent = emulation.load(mbit_s, seconds, batch)
    return Counted(
        sent=sent,
        entered=sum(emulation.packets(path.gateway, "tx")) - sum(entered),
        received=sum(emulation.packets(path.terminal, "rx")) - sum(received),
        seconds=seconds,
        cpu_seconds=emulation.process.cpu_seconds() - cpu,
    )


def _delay_errors(emulation: Emulation, bit_s: float, mbit_s: float, seconds: float) -> list[float]:
    """How much later each packet came than the link of this rate and delay would have it, microseconds."""
    path = emulation.path
    with (
        capture.capture(path, path.gateway, _device(1), "out", _others()) as departures,
        capture.capture(path, path.terminal, _device(1), "in", _others()) as arrivals,
    ):
        emulation.load(mbit_s, seconds)
    return delay_errors(capture.read(departures), capture.read(arrivals), bit_s, DELAY_MS)


def delay_errors(
    departures: Sequence[capture.Seen], arrivals: Sequence[capture.Seen], bit_s: float, delay_ms: float
) -> list[float]:
    """The same, worked out: what a link of this rate and delay would have done with the departures."""
    arrived = {packet.number: packet.at_ns for packet in arrivals}
    begin = departures[0].at_ns if departures else 0
    errors, free = [], 0.0
    for packet in departures:
        # One transmitter: a packet begins when it comes, or when the one before is through.
        free = max(float(packet.at_ns - begin), free) + packet.length * 8e9 / bit_s
        if packet.number in arrived:
            errors.append((arrived[packet.number] - begin - free) / 1e3 - delay_ms * 1e3)
    return errors


@contextmanager
def _emulation(
    path: Topology, name: str, *, rate: float, loss: float = 0, links: int = 1, options: list[str] | None = None
) -> Iterator[Emulation]:
    """An emulator of its own for one measurement, confined to processor 0."""
    scenario = path.directory / f"{name}.toml"
    scenario.write_text(SCENARIO.format(rate=rate, delay=DELAY_MS, loss=loss))
    certificate = path.directory.absolute() / f"{name}.certificate.json"
    argv: list[str | Path] = ["taskset", "--cpu-list", "0", host.binary(), "emulate", scenario.absolute()]
    argv += ["--certificate", certificate, *(options or [])]
    for number in range(1, links + 1):
        ends = [
            f"{where.name}/{_device(number)},{_address(number, end)}/24"
            for where, end in ((path.terminal, 1), (path.gateway, 2))
        ]
        argv += ["--link", "=".join(ends)]
    process = path.start(f"emulator-{name}", path.satellite, argv)
    process.wait_line("ready")
    with ExitStack() as stack:
        stack.callback(process.stop)
        # Somebody takes the packets, or the kernel would answer each that nobody does; nobody reads them.
        sink = stack.enter_context(path.terminal.socket(kind=_DATAGRAMS))
        sink.bind(("", load.PORT))
        yield Emulation(path, process, certificate, links)


_DATAGRAMS = 2
"""SOCK_DGRAM."""


def _device(number: int) -> str:
    return f"lk{number}"


def _address(number: int, end: int) -> str:
    return f"10.78.{number}.{end}"


def _others() -> str:
    """The processors that the emulator does not use."""
    return f"1-{(os.cpu_count() or 2) - 1}"


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
