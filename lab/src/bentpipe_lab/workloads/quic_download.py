"""A large file from one QUIC implementation to another, over a new connection."""

import re
from collections.abc import Mapping
from typing import ClassVar, Self

from bentpipe_lab.analysis import bounds
from bentpipe_lab.matrix import cell, competing, ends, evidence
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.stacks.manifest import all_manifests
from bentpipe_lab.workloads.contract import QUIC, Metric, Option, Workload

SAMPLE = "ngtcp2"
"""What is taken where a plan names no implementation: both ends come from the distribution."""
LIMIT = re.compile(r"(\d+(?:\.\d+)?) ?(s|min)")
BESIDE_S = ends.READY_S + 2 * evidence.TRACE_S
"""What a run may take beside the download: the server's start, and reading two captures."""


def limit_s(text: str) -> float:
    """Seconds of a limit like "120 s"."""
    match = LIMIT.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise ValueError('give a time, like "120 s" or "6 min"')
    return float(match[1]) * (60 if match[2] == "min" else 1)


def _window(text: str) -> None:
    if text and not 1 <= int(text) <= 10_000:
        raise ValueError("give packets, a whole number up to 10000")


def _having(role: str) -> list[str]:
    return [each.name for each in all_manifests().values() if role in each.protocols]


class QuicDownload(Workload):
    """A large file from one QUIC implementation to another; the server is started anew for each run."""

    name = "quic download"
    order = 80
    measures = "time to the last byte, from the packets"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    reads_records = True
    options: ClassVar[Mapping[str, Option]] = {
        "client": Option(SAMPLE, known=_having("client")),
        "server": Option(SAMPLE, known=_having("server")),
        "windows": Option(cell.SHIPPED, known=(cell.SHIPPED, cell.TUNED)),
        "server_controller": Option(""),
        "server_initial_window": Option("", check=_window),
        "file": Option("10MiB", known=("2MB", "10MiB", "25MiB")),
        "beside": Option(competing.NONE, known=competing.CHOICES),
        "limit": Option("120 s", check=limit_s),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "goodput_whole_bit_s": Metric("goodput, from the first packet", "bit/s", "more"),
        "handshake_s": Metric("handshake", "s"),
        "first_byte_s": Metric("first byte", "s"),
        "efficiency": Metric("share of the link", "", "more"),
        "beside_bit_s": Metric("goodput of the other connection", "bit/s"),
        "repeated_bytes": Metric("repeated", "bytes"),
    }

    def with_options(self, chosen: Mapping[str, str]) -> Self:
        """The workload with something chosen of it."""
        one = super().with_options(chosen)
        one.overhead_s = limit_s(one.option("limit")) + BESIDE_S
        one.usual_s = limit_s(one.option("limit")) / 4
        return one

    def run(self, path: Topology) -> Outcome:
        """Download it by the client that was chosen from the server that was chosen."""
        return cell.run(path, self.request())

    def request(self) -> cell.Request:
        """What was chosen."""
        window = self.option("server_initial_window")
        return cell.Request(
            client=self.option("client"),
            server=self.option("server"),
            file=self.option("file"),
            limit_s=limit_s(self.option("limit")),
            windows=self.option("windows"),
            controller=self.option("server_controller") or None,
            initial_window=int(window) if window else None,
            beside=self.option("beside"),
        )

    @property
    def over(self) -> str:
        """QUIC."""
        return QUIC

    def bound_s(self, link: Link) -> float:
        """A round trip for the handshake, one for the request, and the bytes on the forward link."""
        return link.path_rtt_s + bounds.download_s(link, ends.FILES[self.option("file")])
