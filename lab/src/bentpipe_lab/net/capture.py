"""What passed a device and when, by the kernel's own time stamps: tcpdump's captures, read back."""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import LabError, ProgramError
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import Topology

NANOSECOND_PCAP = 0xA1B23C4D
SNAP = 64
"""IPv4 and UDP headers and the packet's number, with room."""


@dataclass(frozen=True)
class Seen:
    """One packet at one device."""

    at_ns: int
    number: int
    length: int
    """At the IP level."""


@contextmanager
def capture(path: Topology, where: Namespace, device: str, direction: str, cpus: str) -> Iterator[Path]:
    """Capture the UDP packets of `device` in one direction (`in` or `out`) while the block runs."""
    name = f"{where.name.rpartition('-')[2]}-{device}-{direction}"
    file = path.directory.absolute() / f"{name}.pcap"
    process = path.start(
        f"tcpdump-{name}",
        where,
        [
            "taskset", "--cpu-list", cpus, "tcpdump", "-i", device, "-Q", direction, "-n", "-s", str(SNAP),
            "-B", "16384", "--time-stamp-precision=nano", "-Z", "root", "-w", file, "udp",
        ],
    )  # fmt: skip
    _wait_until_listening(process)
    yield file
    process.stop()
    log = process.log.read_text()
    if "\n0 packets dropped by kernel" not in log:
        raise ProgramError(f"tcpdump missed packets of {device} in {where.name}{process.tail()}")


def read(file: Path) -> list[Seen]:
    """The packets of a capture, in the order in which they passed."""
    data = file.read_bytes()
    if len(data) < 24 or struct.unpack_from("=I", data)[0] != NANOSECOND_PCAP:
        raise LabError(f"{file} is not a capture with nanoseconds; is this tcpdump 4.99 or newer?")
    seen: list[Seen] = []
    at = 24
    while at + 16 <= len(data):
        seconds, nanos, kept, _ = struct.unpack_from("=IIII", data, at)
        at += 16
        # A TUN device has bare IP packets. IPv4 without options, then UDP, then the number.
        if kept >= 36 and data[at] == 0x45:
            (length,) = struct.unpack_from("!H", data, at + 2)
            (number,) = struct.unpack_from("!Q", data, at + 28)
            seen.append(Seen(seconds * 1_000_000_000 + nanos, number, length))
        at += kept
    return seen


def _wait_until_listening(process: Process) -> None:
    """tcpdump says on standard error that it listens."""
    deadline = time.monotonic() + 15
    while "listening on" not in process.log.read_text():
        if process.exit_code is not None or time.monotonic() > deadline:
            raise ProgramError(f"tcpdump does not listen{process.tail()}")
        time.sleep(0.02)
