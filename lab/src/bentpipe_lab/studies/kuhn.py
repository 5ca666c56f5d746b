"""draft-kuhn-quic-4-sat-06: when 2, 10 and 100 MB of a transfer of 100 MB are there."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bentpipe_lab.bounds import WIRE_PER_PAYLOAD
from bentpipe_lab.studies import published, records
from bentpipe_lab.studies.records import Run
from bentpipe_lab.studies.section import Cell, Section, Table, number

MB = 1_000_000
SIZES_MB = (2, 10, 100)


def reached_s(run: Run, megabytes: int) -> float | None:
    """Seconds from the beginning of the last transfer until so much of it had arrived; None if it never did."""
    last = run.transfers[-1]
    before = sum(transfer["received"] for transfer in run.transfers[:-1])
    begun_s = last["begun_ns"] / 1e9
    if megabytes * MB == last["bytes"]:
        return None if last["done_ns"] is None else last["done_ns"] / 1e9 - begun_s
    wanted = before + megabytes * MB
    return next((look.at_s - begun_s for look in run.looks if look.received >= wanted), None)


def bound_s(megabytes: int, rate_mbit_s: float, rtt_s: float, loss: float, *, again: bool) -> float:
    """The least time that physics allows: two round trips and the bytes, or one where the connection stands."""
    return (1 if again else 2) * rtt_s + megabytes * 8 * WIRE_PER_PAYLOAD / (rate_mbit_s * (1 - loss))


def bounds(directory: Path) -> Mapping[tuple[str, int], float]:
    """The bounds of every test on a link that stays as it is, by test and megabytes."""
    found = {}
    for axes, plan in json.loads((directory / "resolved.json").read_text()):
        if plan["change"]:
            continue
        forward = plan["link"]["forward"]
        rtt_s = (_of(forward["delay"], "ms") + _of(plan["link"]["return"]["delay"], "ms")) / 1e3
        rate, loss, again = _of(forward["rate"], "Mbit/s"), _of(forward["loss"], "%") / 100, "warm" in plan["flow"]
        for megabytes in SIZES_MB:
            found[axes["case"], megabytes] = bound_s(megabytes, rate, rtt_s, loss, again=again)
    return found


def _of(text: str, unit: str) -> float:
    number_text, _, its_unit = text.partition(" ")
    if its_unit != unit:
        raise ValueError(f"{text!r} is not in {unit}")
    return float(number_text)


def section(directory: Path) -> Section:
    """Each test of the draft: its target and every controller's time."""
    least = bounds(directory)
    times: dict[tuple[str, int], dict[str, float | None]] = {}
    for run in records.runs(directory):
        for megabytes in SIZES_MB:
            ours = times.setdefault((run.axes["case"], megabytes), {})
            ours[run.axes["flow.controller"]] = reached_s(run, megabytes)
    controllers = list(dict.fromkeys(name for ours in times.values() for name in ours))
    rows: list[list[Cell | str]] = []
    kept = dict.fromkeys(controllers, 0)
    targets = 0
    for row in published.table("kuhn"):
        ours = times.get((row["case"], int(row["mb"])), {})
        target = float(row["target_s"]) if row["target_s"] else None
        targets += target is not None
        for name in controllers:
            kept[name] += _keeps(ours.get(name), target)
        rows.append(
            [
                row["case"],
                f"{row['mb']} MB",
                number(target, 0, " s"),
                number(least.get((row["case"], int(row["mb"])))),
                *_cells(controllers, ours, target),
            ]
        )
    told = ", ".join(f"{name} {count}" for name, count in kept.items())
    return Section(
        "draft-kuhn-quic-4-sat: targets",
        published.source("kuhn"),
        [
            (
                f"650 ms, queues of one bandwidth-delay product, initial windows of 32 packets. Kept of {targets}"
                f" targets: {told}. Times below 100 MB are to the next look, 50 ms apart."
            ),
            (
                "The bound is the least time that physics allows. In the test of 4.1 it leaves the targets 0.03 s for"
                " 2 MB, 0.35 s for 10 MB and 0.2 s for 100 MB: a sender that has to learn the rate cannot keep them."
                " An upload is the same link with its directions changed over."
            ),
        ],
        [Table("Seconds until so much was there", ["test", "of 100 MB", "target", "bound", *controllers], rows)],
    )


def _keeps(seconds: float | None, target: float | None) -> bool:
    return seconds is not None and target is not None and seconds <= target


def _cells(controllers: Sequence[str], ours: dict[str, float | None], target: float | None) -> Sequence[Cell]:
    def mark(seconds: float | None) -> str:
        if target is None:
            return ""
        return "within" if _keeps(seconds, target) else "short"

    return [Cell(number(ours.get(name)), mark(ours.get(name))) for name in controllers]
