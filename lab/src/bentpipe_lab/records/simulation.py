"""Records of `bentpipe sim`, one run of one flow after the other, as outcomes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from bentpipe_lab.records import parts
from bentpipe_lab.records.generated import TransferRecord, TunnelFlow
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict

_VERDICTS = {"ok": Verdict.OK, "reset": Verdict.RESET, "wrong content": Verdict.WRONG_CONTENT}


@dataclass
class SimulatedRun:
    """One run: its place in the plan, and its lines as they were written."""

    case: str
    seed: int
    failed: str | None
    """What went wrong with the simulator itself."""
    lines: list[str] = field(default_factory=list)

    @cached_property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """All lines but samples."""
        return [json.loads(line) for line in self.lines if not line.startswith('{"record":"sample"')]

    @cached_property
    def samples(self) -> Sequence[Mapping[str, Any]]:
        """How its last flow went, since that began."""
        flow = _last(self.records)
        return _samples(self.lines, 0 if flow is None else flow.begun_ns)


@dataclass(frozen=True)
class _Flow:
    """What both kinds of flow have."""

    size: int | None
    """None where the connection never stood."""
    received: int
    begun_ns: int
    first_byte_ns: int | None
    done_ns: int | None
    verdict: str | None


def runs(path: Path) -> Iterator[SimulatedRun]:
    """The runs of a `records.jsonl`, one after the other; a last line that was cut off ends the last run."""
    run: SimulatedRun | None = None
    with path.open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            if line.startswith('{"run"'):
                if run is not None:
                    yield run
                head = json.loads(line)["run"]
                run = SimulatedRun(head["axes"].get("case", ""), head["seed"], head.get("failed"))
            elif run is not None:
                run.lines.append(line)
    if run is not None:
        yield run


def outcome(
    run: SimulatedRun, until: Literal["first byte", "last byte", "the end"], switches: Sequence[float] = ()
) -> Outcome:
    """What became of a run's last flow; `switches` are the moments, seconds, at which its link was another."""
    if run.failed is not None:
        return Outcome(Verdict.FAILED, detail=f"the simulator: {run.failed}")
    flow = _last(run.records)
    if flow is None:
        return Outcome(Verdict.FAILED, detail="the simulator recorded no flow")
    if until == "the end":
        return _of_fixed_length(run, flow, switches)
    moment = flow.first_byte_ns if until == "first byte" else flow.done_ns
    verdict, detail = _verdict(run.records, flow)
    seconds = None if moment is None or verdict is not Verdict.OK else (moment - flow.begun_ns) / 1e9
    metrics = {} if seconds is None or until == "first byte" else _moments(run, flow)
    return Outcome(verdict, seconds, flow.received, detail, metrics=metrics)


def _moments(run: SimulatedRun, flow: _Flow) -> dict[str, float]:
    """When the first byte and some amounts of a whole transfer had arrived; what was got from the first byte on."""
    assert flow.done_ns is not None
    found = parts.amounts(run.samples, flow.received, (flow.done_ns - flow.begun_ns) / 1e9)
    if flow.first_byte_ns is not None and flow.first_byte_ns < flow.done_ns:
        found["first_byte_s"] = (flow.first_byte_ns - flow.begun_ns) / 1e9
        # As QUIC Interop Runner counts.
        found["from_first_byte_mbit_s"] = flow.received * 8e3 / (flow.done_ns - flow.first_byte_ns)
    return found


def _of_fixed_length(run: SimulatedRun, flow: _Flow, switches: Sequence[float]) -> Outcome:
    """What a transfer got that lasts until the simulation ends."""
    seen = run.samples
    lasted_s = seen[-1]["at_s"] if seen else 0.0
    if not flow.received or lasted_s <= 0:
        return Outcome(Verdict.TIMED_OUT, detail="nothing had arrived by the end")
    figures = {"goodput_mbit_s": flow.received * 8e-6 / lasted_s, **parts.of_fixed_length(seen, switches)}
    return Outcome(Verdict.OK, lasted_s, flow.received, metrics=figures)


def samples(run: SimulatedRun) -> str:
    """How the run's last flow went, a line of JSON per moment since it began: time, bytes received, window, RTT."""
    return "".join(f"{json.dumps(row)}\n" for row in run.samples)


def _samples(lines: Sequence[str], begun_ns: int) -> list[dict[str, Any]]:
    received = arrived = 0
    rows: list[dict[str, Any]] = []
    for line in lines:
        if not line.startswith('{"record":"sample"'):
            continue
        record = json.loads(line)
        if record.get("flow", record.get("terminal", 0)) != 0:
            continue
        udp, waited_ns = record.get("arrived_udp_bytes"), record.get("waited_ns")
        if record["at_ns"] < begun_ns:
            received, arrived = record["received"], udp or 0
            continue
        sender = record.get("session") or record
        rtt_ns = sender.get("rtt_ns")
        rows.append(
            {
                "at_s": (record["at_ns"] - begun_ns) / 1e9,
                "received_bytes": record["received"] - received,
                "window_bytes": sender.get("window"),
                "rtt_s": None if rtt_ns is None else rtt_ns / 1e9,
                "arrived_udp_bytes": None if udp is None else udp - arrived,
                "waited_s": None if waited_ns is None else waited_ns / 1e9,
            }
        )
    return rows


def _last(records: Sequence[Mapping[str, Any]]) -> _Flow | None:
    """The transfer of a connection, or the last flow of a tunnel."""
    transfers = [cast(TransferRecord, record) for record in records if record.get("record") == "transfer"]
    flows = [cast(TunnelFlow, each) for each in records if each.get("record") == "flow" and "work" in each]
    if transfers:
        last = transfers[-1]
        return _Flow(
            last["bytes"], last["received"], last["begun_ns"], last.get("first_byte_ns"), last.get("done_ns"), None
        )
    if not flows:
        # A connection that was never established has no transfer.
        broken = any(record.get("record") == "flow" and "controller" in record for record in records)
        return _Flow(None, 0, 0, None, None, None) if broken else None
    flow = max(flows, key=lambda flow: flow["flow"])
    return _Flow(
        flow["bytes"],
        flow["arrived"],
        flow["begun_ns"],
        flow.get("first_byte_ns"),
        flow.get("done_ns"),
        flow["verdict"],
    )


def _verdict(records: Sequence[Mapping[str, Any]], flow: _Flow) -> tuple[Verdict, str]:
    said: Any = flow.verdict
    if said is None:
        said = next((record["verdict"] for record in records if record.get("record") == "flow"), "timed_out")
    text = str(said.get("why", said["is"]) if isinstance(said, Mapping) else said).replace("_", " ")
    if text in _VERDICTS:
        return _VERDICTS[text], ""
    at = "before the connection stood" if flow.size is None else f"at byte {flow.received} of {flow.size}"
    if text in ("timed out", "not begun"):
        return (Verdict.STALLED if flow.received else Verdict.TIMED_OUT), at
    return Verdict.FAILED, f"{text} {at}"
