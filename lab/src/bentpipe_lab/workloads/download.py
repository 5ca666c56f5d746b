"""A file of any size, over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.size import size
from bentpipe_lab.workloads.contract import Option, Transfer, Workload
from bentpipe_lab.workloads.programs import curl


class Download(Workload):
    """A file of the chosen size, from the server to the client."""

    name = "download"
    order = 70
    measures = "time to the last byte"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    options: ClassVar[Mapping[str, Option]] = {"size": Option("2 MB", check=size)}

    def run(self, path: Topology) -> Outcome:
        """Download it with curl."""
        return curl.download(path, path.origin.provide(size(self.option("size"))).path)

    def bound_s(self, link: Link) -> float:
        """A round trip and its bytes on the forward link."""
        return bounds.download_s(link, size(self.option("size")))

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(size(self.option("size")))
