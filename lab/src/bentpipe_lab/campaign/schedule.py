"""What is to be run next: open runs, in units, in a seeded order, with an estimate of their time."""

import heapq
import os
import random
from collections.abc import Iterator, Mapping, Sequence

from bentpipe_lab.analysis import bounds
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.campaign import costs, side_by_side
from bentpipe_lab.campaign.costs import Range
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.campaign.plan import REAL, VIRTUAL, Plan
from bentpipe_lab.campaign.points import Point
from bentpipe_lab.campaign.unit import LEAST_PATIENCE_S, Run, Unit, unit
from bentpipe_lab.net import content
from bentpipe_lab.net.packet import STREAM_PAYLOAD
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.workloads import WORKLOADS

CHUNK_S = 2.0
"""Estimated processor time of a unit in virtual time."""
BLOCK_S = 90.0
"""Estimated time of a unit in real time, beside what its path costs."""
MOST_CASES = 400
PROCESSOR_SHARE = 0.7
"""How much of a processor a simulation gets, among others."""
RUN_S = 0.004
PATIENCE = 50.0
"""As a multiple of what its longest run, or building its path, is expected to take at most, a unit is waited for."""


def open_runs(plan: Plan, points: Sequence[Point], state: State) -> list[Run]:
    """The runs that are still to be done, as far as can be said now."""
    found = []
    for point in points:
        for repetition in range(1, _wanted(plan, point, state) + 1):
            run = _open(plan, point, repetition, state)
            if run is not None:
                found.append(run)
    return found


def units(plan: Plan, points: Sequence[Point], runs: Sequence[Run]) -> list[Unit]:
    """Runs in units, in the plan's order or shuffled by its seed."""
    by_id = {point.id: point for point in points}
    order = None if plan.shuffle is None else random.Random(plan.shuffle)  # noqa: S311 (an order, not a secret)
    made = [*_virtual(plan, by_id, runs), *_real(plan, by_id, runs, order)]
    if order is not None:
        order.shuffle(made)
    return sorted(made, key=lambda each: (each.clock == REAL, each.runs[0].repetition if plan.rounds else 0))


def estimate_s(points: Mapping[str, Point], each: Unit) -> float:
    """About how long a unit takes: processor time in virtual time, time on the clock in real time."""
    total = sum(run_s(points[run.point]) for run in each.runs)
    if each.clock == REAL:
        total += path_s(points[each.runs[0].point])
    return total


def on_the_clock_s(points: Mapping[str, Point], each: Unit, paths: int) -> float:
    """What a unit adds to how long all units take, with so many paths side by side."""
    if each.clock == REAL:
        return estimate_s(points, each) / paths
    return estimate_s(points, each) / len(os.sched_getaffinity(0)) / PROCESSOR_SHARE


def takes(points: Mapping[str, Point], each: Sequence[Unit], paths: int) -> Range:
    """How long units in real time take on the clock, with so many paths side by side, in their order."""
    of_unit = [_unit_range(points, one) for one in each]
    return Range(
        side_by_side_s([one.low for one in of_unit], paths), side_by_side_s([one.high for one in of_unit], paths)
    )


def _unit_range(points: Mapping[str, Point], each: Unit) -> Range:
    range_ = path_range(points[each.runs[0].point])
    for run in each.runs:
        range_ += run_range(points[run.point]) * (costs.REPEATED + 1)
    return range_


def side_by_side_s(lengths_s: Sequence[float], paths: int) -> float:
    """When the last is done, seconds, where the next one begins whenever one is done."""
    free_at = [0.0] * paths
    for length_s in lengths_s:
        heapq.heappush(free_at, heapq.heappop(free_at) + length_s)
    return max(free_at)


def run_s(point: Point) -> float:
    """About how long a run takes."""
    if point.clock == REAL:
        return run_range(point).middle
    workload = WORKLOADS[point.workload].with_options(point.options)
    size = 0.0 if workload.transfer is None else workload.transfer.size
    if workload.runs_for_s is not None:
        size = min(size, point.link.forward.rate_bit_s / 8 * workload.runs_for_s)
    if SYSTEMS[point.system].warms_up and not point.cold:
        size += 2 * content.FILES["10MiB"] + content.FILES["2MB"]
    return RUN_S + size / STREAM_PAYLOAD * SYSTEMS[point.system].simulated_packet_s


def run_range(point: Point) -> Range:
    """How long a run in real time takes, from begin to end."""
    workload = WORKLOADS[point.workload].with_options(point.options)
    beside = costs.of(costs.BESIDE_S, point.workload)
    if workload.usual_s is not None:
        beside = Range(workload.usual_s, workload.usual_s)
    slower = Range(1, 1) if workload.runs_for_s else costs.slower(point.system, point.link)
    return ((slower * point.bound_s + beside) * workload.loads).at_most(point.limit_s)


def path_s(point: Point) -> float:
    """About how long it takes to build a path and to warm it up."""
    return path_range(point).middle


def path_range(point: Point) -> Range:
    """How long it takes to build a path, to warm it up, and to remove it."""
    path = costs.of(costs.PATH_S, point.system)
    if point.cold or not SYSTEMS[point.system].warms_up:
        return path
    down = bounds.download_s(point.link, content.FILES["10MiB"])
    return path + costs.of(costs.WARM_UP, point.system) * (2 * down + bounds.upload_s(point.link, content.FILES["2MB"]))


def _wanted(plan: Plan, point: Point, state: State) -> int:
    """So many repetitions: the least, and more for as long as the interval of the median is too wide."""
    count = plan.repetitions.least
    width = plan.repetitions.relative_width
    if width is None:
        return count
    while count < plan.repetitions.most:
        finished = [state.done.get((point.id, repetition)) for repetition in range(1, count + 1)]
        if any(done is None for done in finished):
            return count
        good = [done.figure for done in finished if done and done.verdict is Verdict.OK and done.figure is not None]
        if not good:
            return count  # more of the same would tell nothing new
        interval = median_interval(good)
        if interval.width_of_median <= width:
            return count
        count = min(plan.repetitions.most, count + plan.repetitions.least)
    return count


def _open(plan: Plan, point: Point, repetition: int, state: State) -> Run | None:
    key = (point.id, repetition)
    done = state.done.get(key)
    if done is None:
        return Run(point.id, repetition, 1)
    late = done.verdict is Verdict.EMULATOR_LATE and done.run.attempt <= plan.late_repeats
    if late or key in state.again:
        return Run(point.id, repetition, done.run.attempt + 1)
    return None


def _virtual(plan: Plan, points: Mapping[str, Point], runs: Sequence[Run]) -> Iterator[Unit]:
    """Chunks of points, all seeds of a point together; all points of a chunk have equally many."""
    of_point: dict[str, list[Run]] = {}
    for run in runs:
        if points[run.point].clock == VIRTUAL:
            of_point.setdefault(run.point, []).append(run)
    chunk: list[str] = []
    spent = 0.0
    last = 0
    for name, its_runs in of_point.items():
        seeds = max(run.repetition for run in its_runs)
        cost = seeds * run_s(points[name])
        if chunk and (spent + cost > CHUNK_S or len(chunk) >= MOST_CASES or seeds != last):
            yield _unit(plan, points, [run for each in chunk for run in of_point[each]])
            chunk, spent = [], 0.0
        chunk.append(name)
        spent, last = spent + cost, seeds
    if chunk:
        yield _unit(plan, points, [run for each in chunk for run in of_point[each]])


def _real(plan: Plan, points: Mapping[str, Point], runs: Sequence[Run], order: random.Random | None) -> Iterator[Unit]:
    """Blocks of runs over one path, workloads taking turns."""
    of_path: dict[tuple[object, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.repetition):
        if points[run.point].clock == REAL:
            point = points[run.point]
            round_of = run.repetition if plan.rounds else 0
            alone = run if point.cold else None
            of_path.setdefault((point.path, round_of, alone), []).append(run)
    for its_runs in of_path.values():
        if order is not None:
            order.shuffle(its_runs)
        block: list[Run] = []
        spent = 0.0
        for run in its_runs:
            cost = run_s(points[run.point])
            if block and spent + cost > BLOCK_S:
                yield _unit(plan, points, block)
                block, spent = [], 0.0
            block.append(run)
            spent += cost
        if block:
            yield _unit(plan, points, block)


def _unit(plan: Plan, points: Mapping[str, Point], runs: Sequence[Run]) -> Unit:
    its_points = [points[name] for name in dict.fromkeys(run.point for run in runs)]
    # A cold run is repeated over a path of its own.
    repeats = 0 if any(point.cold for point in its_points) else plan.late_repeats
    hosts = None if plan.hosts is None else plan.hosts.as_data()
    alone = side_by_side.choice(plan).paths == 1
    return unit(its_points, runs, repeats, hosts, alone=alone, patience_s=_patience_s(its_points))


def _patience_s(points: Sequence[Point]) -> float:
    longest_s = max(path_range(point).high if point.clock == REAL else run_s(point) for point in points)
    return max(LEAST_PATIENCE_S, PATIENCE * longest_s)
