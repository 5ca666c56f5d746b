"""A transfer of a fixed time by iperf3, with the sender's window, round-trip time and retransmissions."""

import bisect
import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.contract import Metric, Option, Transfer, Workload
from bentpipe_lab.workloads.parts import listening
from bentpipe_lab.workloads.parts.number import whole
from bentpipe_lab.workloads.programs import inside

IPERF3 = Debian("iperf3")
PORT = 5201
SECONDS = "15"
"""As Kosek et al. measured."""
INTERVAL_S = 0.1
PLATEAU = 0.9
MOST_BYTES = 200_000_000_000
"""More than the fastest scenario carries in that time."""


class Iperf3(Workload):
    """As much as TCP carries in a fixed time, over one connection or several.

    Where a proxy splits it, the window is that of the sender's part; of several connections it is their sum.
    """

    name = "iperf3"
    order = 90
    measures = "its length, which is fixed; what counts is the goodput"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 10.0
    programs = (IPERF3,)
    options: ClassVar[Mapping[str, Option]] = {
        "direction": Option("download", ("download", "upload")),
        "seconds": Option(SECONDS, check=whole),
        "flows": Option("1", check=whole),
    }
    counts = "goodput_mbit_s"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "goodput_mbit_s": Metric("goodput", "Mbit/s", "more"),
        "to_90_percent_s": Metric("time to 90 % of the best second", "s"),
        "received_by_10_s_mbyte": Metric("received in the first 10 s", "MB", "more"),
        "last_second_mbit_s": Metric("goodput of the last second", "Mbit/s", "more"),
        "retransmitted_packets": Metric("packets sent again", ""),
        "mean_rtt_s": Metric("mean round-trip time, as the sender sees it", "s"),
    }

    def run(self, path: Topology) -> Outcome:
        """Sampled ten times a second at the receiver, and at the sender by TCP_INFO."""
        server = path.start("iperf3", path.server, [
            IPERF3.found(), "--server", "--one-off", "--json", "--port", str(PORT), "--interval", str(INTERVAL_S),
        ])  # fmt: skip
        listening.wait(path.server, PORT, server)
        download = self.option("direction") == "download"
        argv = [
            str(IPERF3.found()), "--client", SERVER4, "--port", str(PORT), "--time", self.option("seconds"),
            "--interval", str(INTERVAL_S), "--json", "--get-server-output", "--parallel", self.option("flows"),
            *(["--reverse"] if download else []),
        ]  # fmt: skip
        try:
            with inside.started(path, argv) as process:
                printed, said = inside.heard(process)
        finally:
            server.stop()
        return judged(printed, said, process.returncode, download=download)

    def bound_s(self, link: Link) -> float:
        """Its length."""
        del link
        return float(self.option("seconds"))

    @property
    def runs_for_s(self) -> float | None:
        """Its length."""
        return float(self.option("seconds"))

    @property
    def transfer(self) -> Transfer | None:
        """As much as goes in that time."""
        return Transfer(MOST_BYTES, upload=self.option("direction") == "upload", until="the end")


def judged(printed: str, said: str, code: int, *, download: bool) -> Outcome:
    """What iperf3 printed, as an outcome."""
    try:
        report = json.loads(printed)
    except json.JSONDecodeError:
        return Outcome(Verdict.FAILED, detail=f"iperf3 {code}: {(said or printed).strip()[-300:]}")
    if report.get("error"):
        return Outcome(_verdict(report["error"]), detail=f"iperf3: {report['error']}")
    if not report["intervals"]:
        return Outcome(Verdict.TIMED_OUT, detail="iperf3 measured no interval")
    received: Sequence[Any] = report["intervals"] if download else report["server_output_json"]["intervals"]
    sent: Sequence[Any] = report["server_output_json"]["intervals"] if download else report["intervals"]
    looks = [each["sum"]["end"] for each in sent]
    samples, total = [], 0
    for each in received:
        total += each["sum"]["bytes"]
        row: dict[str, Any] = {"at_s": round(each["sum"]["end"], 3), "received_bytes": total}
        number = bisect.bisect_left(looks, each["sum"]["end"] - INTERVAL_S / 2)
        if number < len(sent) and looks[number] < each["sum"]["end"] + INTERVAL_S / 2:
            streams = sent[number]["streams"]
            round_trips = [stream["rtt"] / 1e6 for stream in streams if stream.get("rtt")]
            row |= {
                "window_bytes": _sum(streams, "snd_cwnd"),
                "rtt_s": fmean(round_trips) if round_trips else None,
                "retransmitted_packets": _sum(streams, "retransmits"),
            }
        samples.append(row)
    if not total:
        return Outcome(Verdict.TIMED_OUT, detail="no byte arrived")
    lasted = samples[-1]["at_s"]
    rtts = [row["rtt_s"] for row in samples if row.get("rtt_s")]
    metrics = {
        "goodput_mbit_s": total * 8e-6 / lasted,
        "to_90_percent_s": to_plateau(samples),
        "received_by_10_s_mbyte": received_by(samples, 10.0) / 1e6,
        "last_second_mbit_s": (total - received_by(samples, lasted - 1.0)) * 8e-6,
        "retransmitted_packets": float(report["end"]["sum_sent"].get("retransmits", 0)),
        **({"mean_rtt_s": sum(rtts) / len(rtts)} if rtts else {}),
    }
    return Outcome(Verdict.OK, lasted, total, metrics=metrics, samples=samples)


def _sum(streams: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Of all connections; None where the kernel tells it of none."""
    told = [stream[name] for stream in streams if stream.get(name) is not None]
    return sum(told) if told else None


def to_plateau(samples: Sequence[Mapping[str, Any]]) -> float:
    """When goodput first is, over a second, 90 % of that of its best second."""
    at: list[float] = [0.0, *(row["at_s"] for row in samples)]
    received = [0, *(row["received_bytes"] for row in samples)]
    rates = []
    for last in range(1, len(at)):
        first = next((place for place in range(last, -1, -1) if at[last] - at[place] >= 1.0 - 1e-6), None)
        if first is not None:
            rates.append((at[last], (received[last] - received[first]) / (at[last] - at[first])))
    best = max((rate for _, rate in rates), default=0.0)
    return next((moment for moment, rate in rates if rate >= PLATEAU * best * (1 - 1e-9)), at[-1])


def received_by(samples: Sequence[Mapping[str, Any]], moment: float) -> float:
    """Bytes that had arrived at a moment, seconds since the beginning; between two samples, evenly."""
    at: list[float] = [0.0, *(row["at_s"] for row in samples)]
    return float(np.interp(moment, at, [0, *(row["received_bytes"] for row in samples)]))


def _verdict(said: str) -> Verdict:
    for words, verdict in (
        ("refused", Verdict.REFUSED), ("reset", Verdict.RESET), ("unreachable", Verdict.UNREACHABLE),
        ("timed out", Verdict.TIMED_OUT), ("timeout", Verdict.TIMED_OUT),
    ):  # fmt: skip
        if words in said.lower():
            return verdict
    return Verdict.FAILED
