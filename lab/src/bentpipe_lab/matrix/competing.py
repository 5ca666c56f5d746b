"""A TCP connection that downloads beside a run, over the same path: cross traffic of the interop runner's kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SERVER4, Topology

NONE, CUBIC = "none", "TCP cubic"
CHOICES = (NONE, CUBIC)
PORT = 5201
LONGEST_S = 86_400
"""iperf3's longest run: this one is ended with the block."""


@dataclass
class Competitor:
    """What the other connection carried, once it has ended."""

    carried_bit_s: float | None = None


@contextmanager
def competing(path: Topology, kind: str, directory: Path) -> Iterator[Competitor]:
    """Download by iperf3 from the server to the client while the block runs; nothing where `kind` is none."""
    found = Competitor()
    if kind == NONE:
        yield found
        return
    host.require(("iperf3",))
    serve = ["iperf3", "--server", "--forceflush", "--port", str(PORT)]
    fetch = ["iperf3", "--client", SERVER4, "--port", str(PORT), "--reverse", "--time", str(LONGEST_S),
             "--congestion", "cubic", "--json"]  # fmt: skip
    server = Process("competing-server", path.server.command(serve), directory)
    try:
        server.wait_line("Server listening")
        client = Process("competing-client", path.client.command(fetch), directory)
        try:
            server.wait_line("Accepted connection")
            yield found
        finally:
            client.stop()
            found.carried_bit_s = carried_bit_s(client.out.read_text())
    finally:
        server.stop()


def carried_bit_s(printed: str) -> float | None:
    """The mean goodput of what iperf3 reported; None when it reported nothing, for want of CUBIC for example."""
    try:
        intervals = [each["sum"] for each in json.loads(printed)["intervals"]]
    except (ValueError, KeyError):
        return None
    seconds = sum(each["seconds"] for each in intervals)
    return 8 * sum(each["bytes"] for each in intervals) / seconds if seconds else None
