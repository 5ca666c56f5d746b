"""What `bentpipe-lab` does with campaigns: plan, run, status, pause, resume, retry."""

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign import journal, load, preemption, schedule, side_by_side, simulate
from bentpipe_lab.campaign.directory import Campaign, State
from bentpipe_lab.campaign.plan import REAL, VIRTUAL, Plan, read
from bentpipe_lab.campaign.points import Expansion, Point, expand
from bentpipe_lab.campaign.progress import Progress, span, spans
from bentpipe_lab.campaign.provenance import now
from bentpipe_lab.campaign.store import Store
from bentpipe_lab.campaign.unit import Run, unit
from bentpipe_lab.errors import CampaignError, PlanError, ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.registry import unknown
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.terminal import command, put
from bentpipe_lab.workloads import WORKLOADS

SHOWN_POINTS = 24
CHECKED_AT_ONCE = 200


def prepared(path: Path, *, quick: bool = False) -> tuple[Plan, Expansion]:
    """A plan and its points, each accepted by the simulator or by the link model."""
    plan = read(path, quick=quick)
    host.binary()
    expansion = expand(plan)
    virtual = [point for point in expansion.points if point.clock == VIRTUAL]
    different = list({str(point.simulation): point for point in virtual}.values())
    for first in range(0, len(different), CHECKED_AT_ONCE):
        some = different[first : first + CHECKED_AT_ONCE]
        runs = [Run(point.id, 1, 1) for point in some]
        try:
            simulate.check(unit(some, runs, 0))
        except ProgramError as error:
            raise PlanError(f"{path}: {error}") from error
    _check_real(path, [point for point in expansion.points if point.clock == REAL])
    return plan, expansion


def _check_real(path: Path, points: Sequence[Point]) -> None:
    """Have systems and workloads accept what was chosen of them."""
    systems = {(point.system, point.settings.suffix): point for point in points}
    workloads = {(point.workload, str(point.options)): point for point in points}
    checks: list[tuple[str, Callable[[], None]]] = [
        *((each.system, partial(SYSTEMS[each.system].check, each.link, each.settings)) for each in systems.values()),
        *((each.workload, WORKLOADS[each.workload].with_options(each.options).check) for each in workloads.values()),
    ]
    for name, check in checks:
        try:
            check()
        except PlanError as error:
            raise PlanError(f"{path}: {name}: {error}") from error


def show_plan(path: Path, console: Console, *, quick: bool = False) -> None:
    """Print the runs of a plan and about how long they take; nothing is started."""
    plan, expansion = prepared(path, quick=quick)
    points = expansion.points
    chosen = [{"clock": point.clock, **{name: str(value) for name, value in point.axes.items()}} for point in points]
    names = list(dict.fromkeys(name for each in chosen for name in each))
    told = {name: {each.get(name, "-") for each in chosen} for name in names}
    varied = [name for name in names if len(told[name]) > 1]
    everywhere = ", ".join(f"{name} = {min(told[name])}" for name in names if name not in varied)
    table = Table(title=plan.name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in varied:
        table.add_column(name, overflow="fold")
    for name in ("bound", "limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for point, axes in zip(points[:SHOWN_POINTS], chosen, strict=False):
        table.add_row(*(axes.get(name, "-") for name in varied), f"{point.bound_s:.3f} s", span(point.limit_s))
    put(console, table)
    if everywhere:
        console.print(f"everywhere: {everywhere}", highlight=False, soft_wrap=True)
    if len(points) > SHOWN_POINTS:
        console.print(f"and {len(points) - SHOWN_POINTS} more points", highlight=False)
    for note in expansion.notes:
        console.print(note, highlight=False)
    repetitions = plan.repetitions
    least = len(points) * repetitions.least
    most = "" if repetitions.relative_width is None else f", at most {len(points) * repetitions.most}"
    console.print(f"{len(points)} points, {least} runs{most}", highlight=False)
    for line in estimate(plan, expansion):
        console.print(line, highlight=False)


def estimate(plan: Plan, expansion: Expansion) -> list[str]:
    """About how long the least repetitions take, by clock."""
    by_id = {point.id: point for point in expansion.points}
    units = schedule.units(plan, expansion.points, schedule.open_runs(plan, expansion.points, State()))
    chosen = side_by_side.choice(plan)
    virtual, real = ([each for each in units if each.clock == clock] for clock in (VIRTUAL, REAL))
    lines = []
    if virtual:
        took = sum(schedule.on_the_clock_s(by_id, each, chosen.paths) for each in virtual)
        lines.append(f"virtual time: about {span(took)} on {len(os.sched_getaffinity(0))} cores")
    if real:
        takes = schedule.takes(by_id, real, chosen.paths)
        lines.append(
            f"real time: {spans(takes.low, takes.high)}, {_paths(chosen.paths)} ({chosen.why}); the more runs are late"
            " and repeated, the longer"
        )
        advised = (preemption.advice(preemption.preemption()), load.advice(load.now(), os.cpu_count() or 1))
        lines += [line for line in advised if line]
    return lines


def _paths(count: int) -> str:
    return "one path after the other" if count == 1 else f"{count} paths side by side"


def run(
    path: Path, out: Path | None, store: str | None, scheduler: str | None, console: Console, *, quick: bool = False
) -> int:
    """Begin a campaign and work on it; 0 when it is done or paused."""
    directory = out or Path("out", read(path, quick=quick).name)
    directories.refuse_begun(directory)
    if store is not None and not Store(store).lasting:
        raise CampaignError(f"the store {store} does not outlast this process: nobody could report what is in it")
    plan, expansion = prepared(path, quick=quick)
    campaign = directories.begin(plan, expansion, directory, store)
    for line in [*expansion.notes, *estimate(plan, expansion)]:
        console.print(line, highlight=False)
    return _work(campaign, scheduler, console)


def resume(directory: Path, scheduler: str | None, console: Console) -> int:
    """Go on with a campaign."""
    return _work(directories.opened(directory), scheduler, console)


def retry(directory: Path, verdicts: tuple[str, ...], scheduler: str | None, console: Console) -> int:
    """Try the runs again that ended with one of some verdicts; what they left is kept."""
    campaign = directories.opened(directory)
    known = {str(verdict): verdict for verdict in Verdict}
    for name in verdicts:
        if name not in known:
            raise unknown("verdict", name, known)
    chosen = [done for done in campaign.state().done.values() if done.verdict in verdicts]
    if not chosen:
        raise CampaignError(f"no run of {directory} ended with {' or '.join(verdicts)}")
    with campaign.held():
        book = journal.Journal(directory / directories.JOURNAL)
        try:
            for done in chosen:
                book.append("retry", at=now(), point=done.run.point, repetition=done.run.repetition)
        finally:
            book.close()
    console.print(f"{len(chosen)} runs are tried again", highlight=False)
    return _work(campaign, scheduler, console)


def pause(directory: Path, console: Console) -> int:
    """Ask whoever works on a campaign to stop when what is in flight is done."""
    campaign = directories.opened(directory)
    if not campaign.running():
        console.print(f"nobody works on {directory}", highlight=False)
        return 0
    (directory / directories.PAUSE).touch()
    console.print("it stops when the runs in flight are done", highlight=False)
    return 0


def status(directory: Path, console: Console) -> int:
    """Print how far a campaign is and how its runs ended."""
    campaign = directories.opened(directory)
    state = campaign.state()
    total = len(campaign.points()) * campaign.plan.repetitions.least
    doing = "running" if campaign.running() else "done" if state.ended else "paused" if state.paused else "not running"
    more = "" if campaign.plan.repetitions.relative_width is None else " at least"
    console.print(f"{campaign.plan.name}: {doing}; {len(state.done)} of{more} {total} runs", highlight=False)
    for verdict, count in state.verdicts().most_common():
        console.print(f"  {verdict}: {count} of {len(state.done)}", highlight=False)
    if len(state.attempts) > len(state.done):
        console.print(f"  {len(state.attempts) - len(state.done)} attempts were repeated", highlight=False)
    gone = campaign.gone(state)
    if gone:
        console.print(f"  {len(gone)} runs have no directory any more: `bentpipe-lab resume` does them again")
    free = shutil.disk_usage(directory).free
    console.print(f"  {free / 1e9:.1f} GB free", highlight=False)
    return 0


def _work(campaign: Campaign, scheduler: str | None, console: Console) -> int:
    # Dask takes half a second to load, which all other commands can do without.
    from bentpipe_lab.campaign import engine

    progress = Progress(console)
    ending = engine.execute(campaign, progress, scheduler)
    state = campaign.state()
    ok = state.verdicts()[Verdict.OK]
    console.print(
        f"{ending}: {ok} of {len(state.done)} runs ended well; `{command('report', campaign.directory)}` shows them",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if ending is not engine.Ending.DONE:
        console.print(f"`{command('resume', campaign.directory)}` goes on", highlight=False, soft_wrap=True)
    return 130 if ending is engine.Ending.INTERRUPTED else 0
