"""Two namespaces with an emulated link between them and nothing else: what a person has who uses the emulator alone."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import CERTIFICATE, Certificate, read_certificate

TERMINAL, GATEWAY = "10.98.0.1", "10.98.0.2"
SCENARIO = """
name = "test"
[forward]
rate = "100 Mbit/s"
delay = "15 ms"
queue = "1000 packets"
[return]
rate = "100 Mbit/s"
delay = "15 ms"
queue = "1000 packets"
"""
LONGER = """
name = "longer"
[forward]
rate = "20 Mbit/s"
delay = "50 ms"
queue = "250 kB"
[return]
rate = "20 Mbit/s"
delay = "50 ms"
queue = "250 kB"
"""
"""A link of 20 Mbit/s both ways and 100 ms, room for a round trip's packets."""


@dataclass
class Emulated:
    """A link that runs."""

    directory: Path
    terminal: Namespace
    gateway: Namespace
    emulator: Process
    control: str

    def set(self, *changes: str) -> None:
        """Change the link; it must succeed."""
        done = self.link("set", *changes)
        assert done.returncode == 0, done.stderr

    def show(self) -> dict[str, Any]:
        """What `bentpipe link show` tells programs."""
        done = self.link("show", "--json")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def link(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`bentpipe link` about this emulator."""
        return bentpipe("link", command, "--control", self.control, *arguments)

    def ping(self, count: int = 8, target: str = GATEWAY, patience_s: float = 5.0) -> list[float]:
        """Round-trip times in milliseconds of the pings that came back.

        Each is a program of its own: one that sends several waits for the last, once it has heard of another, for
        two of its longest round trips, whatever its patience is.
        """
        argv = self.terminal.command(["ping", "-n", "-c", "1", "-W", str(patience_s), target])
        pings = []
        for _ in range(count):
            pings.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            time.sleep(0.02)
        return [float(found) for ping in pings for found in re.findall(r"time=([\d.]+)", ping.communicate()[0])]

    def end(self) -> Certificate:
        """End the emulator and read what it certifies."""
        assert self.emulator.stop() == 0, self.emulator.tail()
        certificate = read_certificate(self.directory)
        assert certificate is not None
        return certificate


def bentpipe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run([host.binary(), *arguments], capture_output=True, text=True, check=False, timeout=60)


@contextmanager
def emulated(
    directory: Path, scenario: str | Path = SCENARIO, options: Sequence[str | Path] = ()
) -> Iterator[Emulated]:
    """A link between two namespaces, removed however the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(scenario, str):
        (directory / "scenario.toml").write_text(scenario)
        scenario = directory / "scenario.toml"
    with host.owned_run() as run:
        terminal, gateway = Namespace(f"{run}-terminal"), Namespace(f"{run}-gateway")
        emulator: Process | None = None
        try:
            terminal.create()
            gateway.create()
            argv = [
                *(host.binary(), "emulate", scenario, "--certificate", directory / CERTIFICATE),
                *("--terminal", terminal.name, "--terminal-address", f"{TERMINAL}/24"),
                *("--gateway", gateway.name, "--gateway-address", f"{GATEWAY}/24", *options),
            ]
            emulator = Process("emulator", argv, directory)
            emulator.wait_line("ready")
            control = emulator.wait_line("control: ").removeprefix("control: ")
            yield Emulated(directory, terminal, gateway, emulator, control)
        finally:
            if emulator is not None:
                emulator.stop()
            terminal.delete()
            gateway.delete()
