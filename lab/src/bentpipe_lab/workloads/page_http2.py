"""The page over HTTP/2 and TLS 1.3 with one connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Workload
from bentpipe_lab.workloads.programs import page

ROUND_TRIPS = 3
"""TLS 1.3 end to end, the HTML, then the objects; TCP is answered locally."""


class PageHttp2(Workload):
    """The page over HTTP/2 and TLS 1.3 with one connection."""

    name = "page HTTP/2"
    order = 30
    measures = "time to the last object"
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 4, "leo": 5}
    headline = True
    timeline = True

    def run(self, path: Topology) -> Outcome:
        """Load it once, nothing kept from an earlier load."""
        return page.load(path, "http2")

    def bound_s(self, link: Link) -> float:
        """Its dependent round trips, and its bytes on the forward link."""
        return bounds.download_s(link, content.page_bytes(), ROUND_TRIPS)
