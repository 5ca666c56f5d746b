"""A file of any size in the other direction."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.size import size
from bentpipe_lab.workloads.contract import Option, Transfer, Workload
from bentpipe_lab.workloads.programs import curl


class Upload(Workload):
    """A file of the chosen size from the client to the server, ended by its answer; the server's copy is checked."""

    name = "upload"
    order = 71
    measures = "time to the server's answer"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    options: ClassVar[Mapping[str, Option]] = {"size": Option("2 MB", check=size)}

    def run(self, path: Topology) -> Outcome:
        """PUT it with curl."""
        return curl.upload(path, path.origin.provide(size(self.option("size"))).path)

    def bound_s(self, link: Link) -> float:
        """A round trip and its bytes on the return link."""
        return bounds.upload_s(link, size(self.option("size")))

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(size(self.option("size")), upload=True)
