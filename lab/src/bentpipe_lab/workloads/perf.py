"""A transfer of a fixed time by `bentpipe perf`: establishment, first byte, goodput, the sender's window."""

import gzip
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bentpipe_lab.errors import PlanError
from bentpipe_lab.net import content, host, product
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.contract import QUIC, TCP, Metric, Option, Transfer, Workload
from bentpipe_lab.workloads.iperf3 import MOST_BYTES, received_by, to_plateau
from bentpipe_lab.workloads.parts.number import whole
from bentpipe_lab.workloads.programs import inside

SECONDS = "15"
"""As Kosek et al. measured."""


class Qlogs:
    """What both ends write of what they do, compressed: `bentpipe trace` reads it so."""

    def __init__(self, directory: Path) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="qlog-", dir=directory)).absolute()

    def of(self, end: str) -> Sequence[str | Path]:
        """Arguments of an end."""
        return ["--qlog", self._place / end]

    def kept(self) -> dict[str, str]:
        """The files by the names that they are kept under; of several connections, those before the last resumed it."""
        found = {}
        for end in ("client", "server"):
            for number, log in enumerate(sorted((self._place / end).glob("*.sqlog")), start=1):
                compressed = self._place / f"{end}-{number}.sqlog.gz"
                with log.open("rb") as text, gzip.open(compressed, "wb", compresslevel=6) as file:
                    shutil.copyfileobj(text, file)
                log.unlink()
                found[compressed.name] = str(compressed)
        return found


class Perf(Workload):
    """As much as one connection carries in a fixed time, with the chosen controller and initial window.

    A resumed one begins with 0-RTT; the connection before it is not measured.
    """

    name = "perf"
    order = 92
    measures = "its length, which is fixed; what counts is the goodput"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 15.0
    options: ClassVar[Mapping[str, Option]] = {
        "direction": Option("download", ("download", "upload")),
        "controller": Option("cubic"),
        "initial_window": Option("10", check=whole),
        "seconds": Option(SECONDS, check=whole),
        "resumed": Option("no", ("no", "yes")),
        "pacing": Option("yes", ("yes", "no")),
        "over": Option(QUIC, (QUIC, TCP)),
        "qlog": Option("no", ("no", "yes")),
    }
    counts = "goodput_mbit_s"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "goodput_mbit_s": Metric("goodput", "Mbit/s", "more"),
        "establishment_s": Metric("connection established", "s"),
        "first_byte_s": Metric("first byte", "s"),
        "to_90_percent_s": Metric("time to 90 % of the best second", "s"),
        "received_by_10_s_mbyte": Metric("received in the first 10 s", "MB", "more"),
        "last_second_mbit_s": Metric("goodput of the last second", "Mbit/s", "more"),
        "lost_packets": Metric("packets given up as lost", ""),
        "retransmitted_kbyte": Metric("sent again", "kB"),
        "smoothed_rtt_s": Metric("round-trip time at the end, as the sender sees it", "s"),
    }

    def check(self) -> None:
        """By the name of the controller, which over TCP is the kernel's; and over TCP there is no qlog."""
        if self.over == QUIC:
            product.check_controller(self.option("controller"))
        elif self.option("qlog") == "yes":
            raise PlanError('workload.qlog = "yes": over TCP there is none')
        elif self.option("pacing") == "no":
            raise PlanError('workload.pacing = "no": over TCP it is the kernel\'s')

    def run(self, path: Topology) -> Outcome:
        """One connection; the receiver's and the sender's reports of it."""
        quic = self.over == QUIC
        authority = Authority.of(path)
        identity = authority.issue("perf")
        ends = [
            "--over", self.over.lower(), "--controller", self.option("controller"),
            "--initial-window", self.option("initial_window"), "--json", "-",
            *(["--no-pacing"] if self.option("pacing") == "no" else []),
        ]  # fmt: skip
        own: list[str | Path] = ["--certificate", identity.chain, "--key", identity.key] if quic else []
        trusted: list[str | Path] = ["--ca", authority.certificate, "--name", content.PERF_HOST] if quic else []
        qlogs = Qlogs(path.directory) if self.option("qlog") == "yes" else None
        server = path.start("perf-server", path.server, [
            host.binary(), "perf", "server", "--listen", f"{SERVER4}:{content.PERF_PORT}", *own, *ends,
            *(qlogs.of("server") if qlogs else []),
        ])  # fmt: skip
        try:
            server.wait_line("perf server on")
            direction = self.option("direction")
            argv: list[str | Path] = [
                host.binary(), "perf", "client", f"{SERVER4}:{content.PERF_PORT}",
                *trusted,
                f"--{direction}", f"{self.option('seconds')} s", *ends,
                *(["--resume"] if self.option("resumed") == "yes" else []),
                *(qlogs.of("client") if qlogs else []),
            ]  # fmt: skip
            with inside.started(path, argv) as process:
                printed, said = inside.heard(process)
            try:
                report = json.loads(printed)
            except json.JSONDecodeError:
                return Outcome(_verdict(said), detail=f"bentpipe perf: {said.strip()[-inside.MOST_SAID :]}")
            if not report["ok"]:
                return Outcome(_verdict(str(report["error"])), detail=f"bentpipe perf: {report['error']}")
            other = json.loads(server.wait_line("{"))
        finally:
            server.stop()
        outcome = judged(*((report, other) if direction == "download" else (other, report)), report)
        outcome.files.update(qlogs.kept() if qlogs else {})
        return outcome

    def bound_s(self, link: Link) -> float:
        """Its length."""
        del link
        return float(self.option("seconds"))

    @property
    def over(self) -> str:
        """QUIC, or the kernel's TCP, unencrypted."""
        return self.option("over")

    @property
    def runs_for_s(self) -> float | None:
        """Its length."""
        return float(self.option("seconds"))

    @property
    def transfer(self) -> Transfer | None:
        """As much as goes in that time; over TCP in real time only."""
        if self.over == TCP:
            return None
        return Transfer(MOST_BYTES, upload=self.option("direction") == "upload", until="the end")


def judged(receiver: Mapping[str, Any], sender: Mapping[str, Any], client: Mapping[str, Any]) -> Outcome:
    """Both ends' reports, as an outcome."""
    windows = _senders(sender["intervals"])
    samples, total = [], 0
    for number, each in enumerate(receiver["intervals"]):
        total += each["received_bytes"]
        row: dict[str, Any] = {"at_s": each["to_ns"] / 1e9, "received_bytes": total}
        seen = windows[number] if number < len(windows) else None
        if seen is not None:
            row["window_bytes"] = seen.get("window_bytes")
            row["rtt_s"] = _scaled(seen.get("smoothed_rtt_ns"), 1e-9)
        samples.append(row)
    if not total:
        return Outcome(Verdict.TIMED_OUT, detail="no byte arrived")
    (connection,) = client["connections"]
    came = connection["establishment"]
    last = (sender["connections"] or [{}])[0].get("sender") or {}
    lasted = samples[-1]["at_s"]
    figures = {
        "goodput_mbit_s": total * 8e-6 / lasted,
        "establishment_s": _since(came["begun_ns"], came["done_ns"]),
        "first_byte_s": _since(came["begun_ns"], connection["first_byte_ns"]),
        "to_90_percent_s": to_plateau(samples),
        "received_by_10_s_mbyte": received_by(samples, 10.0) / 1e6,
        "last_second_mbit_s": (total - received_by(samples, lasted - 1.0)) * 8e-6,
        "lost_packets": _scaled(last.get("lost_packets"), 1.0),
        "retransmitted_kbyte": _scaled(last.get("retransmitted_bytes"), 1e-3),
        "smoothed_rtt_s": _scaled(last.get("smoothed_rtt_ns"), 1e-9),
    }
    metrics = {name: value for name, value in figures.items() if value is not None}
    return Outcome(Verdict.OK, lasted, total, metrics=metrics, samples=samples)


def _senders(intervals: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
    return [each["senders"][0] if each["senders"] else None for each in intervals]


def _since(begun_ns: int, moment_ns: int | None) -> float | None:
    return None if moment_ns is None else (moment_ns - begun_ns) / 1e9


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _verdict(said: str) -> Verdict:
    for words, verdict in (
        ("refused", Verdict.REFUSED), ("unreachable", Verdict.UNREACHABLE), ("timed out", Verdict.TIMED_OUT),
        ("no answer", Verdict.TIMED_OUT), ("does not answer", Verdict.TIMED_OUT),
        ("no session to resume", Verdict.UNSUPPORTED),
    ):  # fmt: skip
        if words in said:
            return verdict
    return Verdict.FAILED
