"""A file of the size of a heavy page or a photograph, over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Transfer, Workload
from bentpipe_lab.workloads.programs import curl

FILE = "2MB"


class Download2Mb(Workload):
    """A file of the size of a heavy page or a photograph, over a new connection."""

    name = "download 2 MB"
    order = 20
    measures = "time to the last byte"
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 4, "leo": 7}
    headline = False
    curve_bytes = content.FILES[FILE]

    def run(self, path: Topology) -> Outcome:
        """Download it with curl."""
        return curl.download(path, FILE)

    def bound_s(self, link: Link) -> float:
        """A round trip and its bytes on the forward link."""
        return bounds.download_s(link, content.FILES[FILE])

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(content.FILES[FILE])
