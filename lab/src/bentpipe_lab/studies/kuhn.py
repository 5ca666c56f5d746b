"""draft-kuhn-quic-4-sat-06: when 2, 10 and 100 MB of a transfer of 100 MB are there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.net.packet import PACKET, WIRE_PER_PAYLOAD
from bentpipe_lab.records import published
from bentpipe_lab.studies import records
from bentpipe_lab.studies.records import Run
from bentpipe_lab.studies.section import Cell, Section, Table, number

MB = 1_000_000
SIZES_MB = (2, 10, 100)
PACKET_BITS = PACKET * 8
"""Of a full packet of the initial window, at the IP level."""
OURS = "satellite"
"""The controller whose misses are explained."""


def reached_s(run: Run, megabytes: int) -> float | None:
    """Seconds from the beginning of the last transfer until so much of it had arrived; None if it never did."""
    last = run.transfers[-1]
    before = sum(transfer["received"] for transfer in run.transfers[:-1])
    begun_s = last["begun_ns"] / 1e9
    if megabytes * MB == last["bytes"]:
        return None if last["done_ns"] is None else last["done_ns"] / 1e9 - begun_s
    wanted = before + megabytes * MB
    return next((sample.at_s - begun_s for sample in run.samples if sample.received >= wanted), None)


@dataclass(frozen=True)
class Bound:
    """The least times that a transfer can take, seconds."""

    physics_s: float
    """Handshake, request and answer, and the bytes at the link's rate."""
    start_s: float
    """The same for whoever knows nothing of the path: no more than the initial window leaves before it is
    acknowledged (RFC 9002, section 7.2), and everything afterwards."""


def bound(megabytes: int, rate_mbit_s: float, rtt_s: float, loss: float, window_packets: int, *, again: bool) -> Bound:
    """Two round trips and the bytes; one, and no start, where the connection stands."""
    physics_s = (1 if again else 2) * rtt_s + megabytes * 8 * WIRE_PER_PAYLOAD / (rate_mbit_s * (1 - loss))
    idle_s = max(0.0, rtt_s - window_packets * PACKET_BITS / (rate_mbit_s * 1e6))
    return Bound(physics_s, physics_s if again else physics_s + idle_s)


def bounds(directory: Path) -> Mapping[tuple[str, int], Bound]:
    """The bounds of every test on a link that stays as it is, by test and megabytes."""
    found = {}
    for axes, plan in json.loads((directory / "resolved.json").read_text()):
        if plan["change"]:
            continue
        forward, flow = plan["link"]["forward"], plan["flow"]
        rtt_s = (_of(forward["delay"], "ms") + _of(plan["link"]["return"]["delay"], "ms")) / 1e3
        rate, loss = _of(forward["rate"], "Mbit/s"), _of(forward["loss"], "%") / 100
        for megabytes in SIZES_MB:
            found[axes["case"], megabytes] = bound(
                megabytes, rate, rtt_s, loss, flow["initial_window"], again="warm" in flow
            )
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
        bound = least.get((row["case"], int(row["mb"])))
        for name in controllers:
            kept[name] += _keeps(ours.get(name), target)
        rows.append(
            [
                row["case"],
                f"{row['mb']} MB",
                number(target, 0, " s"),
                number(bound.physics_s if bound else None),
                *_cells(controllers, ours, target),
            ]
        )
    kept_of_each = ", ".join(f"{name} {count}" for name, count in kept.items())
    return Section(
        "draft-kuhn-quic-4-sat: targets",
        published.source("kuhn"),
        [
            (
                f"650 ms, queues of one bandwidth-delay product, initial windows of 32 packets. Kept of {targets}"
                f" targets: {kept_of_each}. Times below 100 MB are to the next sample, 50 ms apart."
            ),
            (
                "The bound is the least time that physics allows: two round trips and the bytes at the link's rate, one"
                " round trip where the connection stands. An upload is the same link with its directions changed over."
            ),
        ],
        [
            Table("Seconds until so much was there", ["test", "of 100 MB", "target", "bound", *controllers], rows),
            Table(
                f"Targets that the {OURS} controller misses",
                ["test", "of 100 MB", "target", "bound", "bound from the initial window", "ours", "best of all", "why"],
                list(_misses(times, least)),
            ),
        ],
    )


def _misses(
    times: Mapping[tuple[str, int], Mapping[str, float | None]], least: Mapping[tuple[str, int], Bound]
) -> Iterator[Sequence[str]]:
    for row in published.table("kuhn"):
        case, megabytes = row["case"], int(row["mb"])
        reached = times.get((case, megabytes), {})
        if not row["target_s"] or (case, megabytes) not in least or _keeps(reached.get(OURS), float(row["target_s"])):
            continue
        bound = least[case, megabytes]
        best = min((seconds for seconds in reached.values() if seconds is not None), default=None)
        yield (
            case,
            f"{megabytes} MB",
            number(float(row["target_s"]), 0, " s"),
            *map(number, (bound.physics_s, bound.start_s, reached.get(OURS), best)),
            why(float(row["target_s"]), bound, reached.get(OURS)),
        )


def why(target_s: float, bound: Bound, ours_s: float | None) -> str:
    """Whether a target that was missed could have been kept, and by how much it was missed."""
    if target_s < bound.physics_s:
        return "nobody can: less than physics allows"
    missed = "not reached" if ours_s is None else f"missed by {ours_s - target_s:.2f} s"
    if target_s < bound.start_s:
        short_s = bound.start_s - target_s
        return f"not from that window: {short_s:.2f} s short even if the first round trip tells all; {missed}"
    return f"reachable; {missed}"


def _keeps(seconds: float | None, target: float | None) -> bool:
    return seconds is not None and target is not None and seconds <= target


def _cells(controllers: Sequence[str], ours: dict[str, float | None], target: float | None) -> Sequence[Cell]:
    def mark(seconds: float | None) -> str:
        if target is None:
            return ""
        return "within" if _keeps(seconds, target) else "short"

    return [Cell(number(ours.get(name)), mark(ours.get(name))) for name in controllers]
