"""A large file in the other direction."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Transfer, Workload
from bentpipe_lab.workloads.programs import curl

FILE = "10MiB"


class Upload10Mib(Workload):
    """A large file from the client to the server, ended by the server's answer; the server's copy is checked."""

    name = "upload 10 MiB"
    order = 60
    measures = "time to the server's answer"
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 1, "leo": 1}

    def run(self, path: Topology) -> Outcome:
        """PUT it with curl."""
        return curl.upload(path, FILE)

    def bound_s(self, link: Link) -> float:
        """A round trip and its bytes on the return link."""
        return bounds.upload_s(link, content.FILES[FILE])

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(content.FILES[FILE], upload=True)
