"""A new connection: when it stands, when TLS stands, and when the first byte of an answer is there."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Metric, Option, Workload
from bentpipe_lab.workloads.programs import curl

OBJECT = "first-byte"
TLS_ROUND_TRIPS = 1


class Connection(Workload):
    """A request for 100 bytes by curl to nginx, in clear or over TLS 1.3, as Kosek et al. timed TCP."""

    name = "connection"
    order = 95
    measures = "time to the first byte"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    options: ClassVar[Mapping[str, Option]] = {"tls": Option("yes", ("yes", "no"))}
    metrics: ClassVar[Mapping[str, Metric]] = {
        "connect_s": Metric("TCP connection", "s"),
        "tls_s": Metric("TLS session", "s"),
        "first_byte_s": Metric("first byte", "s"),
    }

    def run(self, path: Topology) -> Outcome:
        """Ask once; where a proxy answers the handshake, the connection stands before the server knows of it."""
        return curl.download(path, OBJECT, until="time_starttransfer", tls=self.option("tls") == "yes")

    def bound_s(self, link: Link) -> float:
        """The first byte of a new flow; TLS 1.3 costs a round trip more."""
        further = TLS_ROUND_TRIPS if self.option("tls") == "yes" else 0
        return bounds.first_byte_s(link) + bounds.download_s(link, content.FILES[OBJECT], further)
