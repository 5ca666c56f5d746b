"""Records of `bentpipe sim`, one run of one flow after the other, as outcomes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

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


def outcome(run: SimulatedRun, until: Literal["first byte", "last byte", "the end"]) -> Outcome:
    """What became of a run's last flow."""
    if run.failed is not None:
        return Outcome(Verdict.FAILED, detail=f"the simulator: {run.failed}")
    records = [json.loads(line) for line in run.lines if not line.startswith('{"record":"sample"')]
    flow = _last(records)
    if flow is None:
        return Outcome(Verdict.FAILED, detail="the simulator recorded no flow")
    if until == "the end":
        return _of_fixed_length(run, flow)
    moment = flow.first_byte_ns if until == "first byte" else flow.done_ns
    verdict, detail = _verdict(records, flow)
    seconds = None if moment is None or verdict is not Verdict.OK else (moment - flow.begun_ns) / 1e9
    return Outcome(verdict, seconds, flow.received, detail)


def _of_fixed_length(run: SimulatedRun, flow: _Flow) -> Outcome:
    """What a transfer got that lasts until the simulation ends."""
    moments = [json.loads(line)["at_ns"] for line in run.lines if line.startswith('{"record":"sample"')]
    lasted_s = (max(moments, default=flow.begun_ns) - flow.begun_ns) / 1e9
    if not flow.received or lasted_s <= 0:
        return Outcome(Verdict.TIMED_OUT, detail="nothing had arrived by the end")
    return Outcome(Verdict.OK, lasted_s, flow.received, metrics={"goodput_mbit_s": flow.received * 8e-6 / lasted_s})


def samples(run: SimulatedRun) -> str:
    """How the run's last flow went, a line of JSON per moment since it began: time, bytes received, window, RTT."""
    others: list[str] = []
    own: list[str] = []
    for line in run.lines:
        (own if line.startswith('{"record":"sample"') else others).append(line)
    flow = _last([json.loads(line) for line in others])
    begun_ns = 0 if flow is None else flow.begun_ns
    received = 0
    rows: list[str] = []
    for line in own:
        record = json.loads(line)
        if record.get("flow", record.get("terminal", 0)) != 0:
            continue
        if record["at_ns"] < begun_ns:
            received = record["received"]
            continue
        sender = record.get("session") or record
        window, rtt_ns = sender.get("window"), sender.get("rtt_ns")
        rows.append(
            f'{{"at_s": {(record["at_ns"] - begun_ns) / 1e9}, "received_bytes": {record["received"] - received},'
            f' "window_bytes": {"null" if window is None else window},'
            f' "rtt_s": {"null" if rtt_ns is None else rtt_ns / 1e9}}}\n'
        )
    return "".join(rows)


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
