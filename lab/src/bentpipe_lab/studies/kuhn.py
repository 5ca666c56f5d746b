"""draft-kuhn-quic-4-sat-06: when 2, 10 and 100 MB of a transfer of 100 MB are there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.net.packet import PACKET, WIRE_PER_PAYLOAD
from bentpipe_lab.records import published
from bentpipe_lab.studies.section import Cell, Section, Table, number

SIZES_MB = (2, 10, 100)
PACKET_BITS = PACKET * 8
"""Of a full packet of the initial window, at the IP level."""
OURS = "satellite"
"""The controller whose misses are explained."""
RTT_S, RATE_MBIT_S, WINDOW_PACKETS = 0.65, 50.0, 32
"""Of the medium access; the simulator's initial window."""


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


def bounds(figures: Sequence[MetricRow]) -> Mapping[tuple[str, int], Bound]:
    """The bounds of every test on a link that stays as it is, by test and megabytes."""
    found = {}
    for axes in (each.row.axes for each in figures):
        if "scenario.forward.change.0.at" in axes:
            continue
        rate = _of(axes.get("scenario.forward.rate", f"{RATE_MBIT_S} Mbit/s"), "Mbit/s")
        loss = _of(axes.get("scenario.forward.loss", "0 %"), "%") / 100
        for megabytes in SIZES_MB:
            again = "transport.warm" in axes
            found[axes["case"], megabytes] = bound(megabytes, rate, RTT_S, loss, WINDOW_PACKETS, again=again)
    return found


def _of(text: str, unit: str) -> float:
    number_text, _, its_unit = text.partition(" ")
    if its_unit != unit:
        raise ValueError(f"{text!r} is not in {unit}")
    return float(number_text)


def section(figures: Sequence[MetricRow]) -> Section:
    """Each test of the draft: its target and every controller's time."""
    least = bounds(figures)
    times: dict[tuple[str, int], dict[str, float]] = {}
    for each in figures:
        for megabytes in SIZES_MB:
            if each.metric == f"received_{megabytes}_mb_s":
                ours = times.setdefault((each.row.axes["case"], megabytes), {})
                ours[each.row.axes["controller"]] = each.interval.median
    targets = _targets()
    controllers = list(dict.fromkeys(name for ours in times.values() for name in ours))
    kept = dict.fromkeys(controllers, 0)
    rows: list[list[Cell | str]] = []
    for (case, megabytes), ours in times.items():
        target, bound_ = targets.get((case, megabytes)), least.get((case, megabytes))
        for name in controllers:
            kept[name] += _keeps(ours.get(name), target)
        rows.append(
            [
                case,
                f"{megabytes} MB",
                number(target, 0, " s"),
                number(bound_.physics_s if bound_ else None),
                *_cells(controllers, ours, target),
            ]
        )
    kept_of_each = ", ".join(f"{name} {count}" for name, count in kept.items())
    return Section(
        "Targets",
        [
            (
                f"650 ms, queues of one bandwidth-delay product, initial windows of {WINDOW_PACKETS} packets. Kept of"
                f" {len(targets)} targets: {kept_of_each}. Times below 100 MB are to the next sample, 50 ms apart."
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


def _targets() -> Mapping[tuple[str, int], float]:
    """By test and megabytes, seconds; tests whose targets are to be defined are left out."""
    return {
        (row["case"], megabytes): float(row[published.VALUE])
        for row in published.table("kuhn")
        for megabytes in SIZES_MB
        if row[published.METRIC] == f"received_{megabytes}_mb_s"
    }


def _misses(
    times: Mapping[tuple[str, int], Mapping[str, float]], least: Mapping[tuple[str, int], Bound]
) -> Iterator[Sequence[str]]:
    for (case, megabytes), target in _targets().items():
        reached = times.get((case, megabytes), {})
        if not reached or (case, megabytes) not in least or _keeps(reached.get(OURS), target):
            continue
        bound_ = least[case, megabytes]
        yield (
            case,
            f"{megabytes} MB",
            number(target, 0, " s"),
            *map(number, (bound_.physics_s, bound_.start_s, reached.get(OURS), min(reached.values()))),
            why(target, bound_, reached.get(OURS)),
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


def _cells(controllers: Sequence[str], ours: Mapping[str, float], target: float | None) -> Sequence[Cell]:
    def mark(seconds: float | None) -> str:
        if target is None:
            return ""
        return "within" if _keeps(seconds, target) else "short"

    return [Cell(number(ours.get(name)), mark(ours.get(name))) for name in controllers]
