"""Delay under load: small requests, a call and pings beside bulk transfers."""

import sys
from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.net.link import Link
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Metric, Option, Workload
from bentpipe_lab.workloads.programs import inside

PING = Debian("ping", package="iputils-ping")
ECHO_PORT = 7007
SECONDS, SETTLE_S = 15.0, 5.0
LARGE = "10MiB"


class DelayUnderLoad(Workload):
    """What else happens on the link while it is full; the load has had some seconds to fill it."""

    name = "delay under load"
    order = 100
    measures = "its length, which is fixed; what counts are the delays"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 20.0
    programs = (PING,)
    options: ClassVar[Mapping[str, Option]] = {"load": Option("download", ("download", "upload", "none"))}
    counts = "request_median_s"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "rpm": Metric("responses per minute", "1/min", "more"),
        "request_median_s": Metric("small request over a new TLS connection, median", "s"),
        "request_p95_s": Metric("small request over a new TLS connection, 95 %", "s"),
        "call_rtt_median_s": Metric("round trip of a call's packet, median", "s"),
        "call_rtt_p95_s": Metric("round trip of a call's packet, 95 %", "s"),
        "call_loss_percent": Metric("packets of the call that were lost", "%"),
        "ping_median_s": Metric("ping, median", "s"),
        "ping_p95_s": Metric("ping, 95 %", "s"),
        "load_mbit_s": Metric("goodput of the load", "Mbit/s", "more"),
    }

    def run(self, path: Topology) -> Outcome:
        """Four connections of load over HTTP/2; the figures of the 15 s after the first 5 s."""
        if not path.runs("echo"):
            argv = [sys.executable, "-m", "bentpipe_lab.workloads.programs.echo", SERVER4, str(ECHO_PORT)]
            path.start("echo", path.server, argv).wait_line("ready")
        outcome = inside.task(path, "under_load", {
            "load": self.option("load"), "seconds": SECONDS, "settle_s": SETTLE_S, "address": SERVER4,
            "echo_port": ECHO_PORT, "base": f"https://{NAME}/", "resolve": [f"{NAME}:443:{SERVER4}"],
            "authority": str(path.origin.certificate), "large": LARGE, "small": "first-byte",
            "source": str(path.origin.root / LARGE),
        })  # fmt: skip
        for copy in path.origin.uploads.glob("load-*"):
            copy.unlink()
        return outcome

    def bound_s(self, link: Link) -> float:
        """Its length."""
        del link
        return SECONDS
