"""draft-kuhn-quic-4-sat-06: when 2, 10 and 100 MB of a transfer of 100 MB are there."""

from collections.abc import Sequence
from pathlib import Path

from bentpipe_lab.studies import published, records
from bentpipe_lab.studies.records import Run
from bentpipe_lab.studies.section import Cell, Section, Table, number

MB = 1_000_000


def reached_s(run: Run, megabytes: int) -> float | None:
    """Seconds from the beginning of the last transfer until so much of it had arrived; None if it never did."""
    last = run.transfers[-1]
    before = sum(transfer["received"] for transfer in run.transfers[:-1])
    begun_s = last["begun_ns"] / 1e9
    if megabytes * MB == last["bytes"]:
        return None if last["done_ns"] is None else last["done_ns"] / 1e9 - begun_s
    wanted = before + megabytes * MB
    return next((look.at_s - begun_s for look in run.looks if look.received >= wanted), None)


def section(directory: Path) -> Section:
    """Each test of the draft: its target and every controller's time."""
    times: dict[tuple[str, int], dict[str, float | None]] = {}
    for run in records.runs(directory):
        for megabytes in (2, 10, 100):
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
        rows.append([row["case"], f"{row['mb']} MB", number(target, 0, " s"), *_cells(controllers, ours, target)])
    told = ", ".join(f"{name} {count}" for name, count in kept.items())
    return Section(
        "draft-kuhn-quic-4-sat: targets",
        published.source("kuhn"),
        [
            (
                f"650 ms, queues of one bandwidth-delay product, initial windows of 32 packets. Of {targets} targets"
                f" are kept: {told}. Times below 100 MB are to the next look, 50 ms apart."
            ),
            (
                "An upload is the same link with its directions changed over. At 2 Mbit/s, 100 MB in 1500-byte packets"
                " are 417.5 s on the wire, and 83.5 s at 10 Mbit/s: those targets leave 2.5 and 1.5 s for the start."
            ),
        ],
        [Table("Seconds until so much was there", ["test", "of 100 MB", "target", *controllers], rows)],
    )


def _keeps(seconds: float | None, target: float | None) -> bool:
    return seconds is not None and target is not None and seconds <= target


def _cells(controllers: Sequence[str], ours: dict[str, float | None], target: float | None) -> Sequence[Cell]:
    def mark(seconds: float | None) -> str:
        if target is None:
            return ""
        return "within" if _keeps(seconds, target) else "short"

    return [Cell(number(ours.get(name)), mark(ours.get(name))) for name in controllers]
