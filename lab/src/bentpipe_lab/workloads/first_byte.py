"""The first byte of an answer over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Transfer, Workload
from bentpipe_lab.workloads.programs import curl


class FirstByte(Workload):
    """Time to the first byte of the answer over a new connection."""

    name = "first byte"
    order = 10
    measures = "time to the first byte"
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 8, "leo": 15}
    headline = True

    def run(self, path: Topology) -> Outcome:
        """Ask for 100 bytes with curl."""
        return curl.download(path, "first-byte", until="time_starttransfer")

    def bound_s(self, link: Link) -> float:
        """A satellite round trip and two on the ground."""
        return bounds.first_byte_s(link)

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(content.FILES["first-byte"], until="first byte")
