"""Captures of the terminal's device towards the dish: what passes there beside the tunnel."""

from pathlib import Path

from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import Topology
from conversation import eventually

SNAP = 256
"""Bytes kept of a packet. tcpdump's ring has places of one size: of whole packets it holds some thirty, which a burst
fills on a busy machine."""


def capture(path: Topology, name: str, expression: str) -> Process:
    """Print what passes and fits a pcap expression, from now on."""
    words: list[str | Path] = ["tcpdump", "-i", "sat0", "-nn", "-l", "--immediate-mode", "-s", str(SNAP), expression]
    started = path.start(name, path.terminal, words)
    eventually(lambda: "listening on" in started.log.read_text(), "the capture runs")
    return started


def captured(started: Process) -> str:
    """What a capture has printed, once it has ended: a line a packet, and none is missing."""
    started.stop()
    assert "\n0 packets dropped by kernel" in started.log.read_text(), started.log.read_text()
    return "\n".join(line for line in started.out.read_text().splitlines() if " > " in line)
