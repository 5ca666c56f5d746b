"""A file that the server always has, downloaded over a new connection."""

from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Transfer, Workload
from bentpipe_lab.workloads.programs import curl


class ServedFile(Workload):
    """Its download; which file it is, a workload says."""

    measures = "time to the last byte"
    file: ClassVar[str]
    """Its name in `content.FILES`."""

    def run(self, path: Topology) -> Outcome:
        """Download it with curl."""
        return curl.download(path, self.file)

    def bound_s(self, link: Link) -> float:
        """A round trip and its bytes on the forward link."""
        return bounds.download_s(link, content.FILES[self.file])

    @property
    def transfer(self) -> Transfer:
        """The same bytes over one flow."""
        return Transfer(content.FILES[self.file])
