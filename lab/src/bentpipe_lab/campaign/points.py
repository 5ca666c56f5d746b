"""From a plan to its points: every combination of its axes that makes sense, each with its bound."""

import hashlib
import itertools
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from bentpipe_lab.analysis import bounds
from bentpipe_lab.campaign.plan import COLD, REAL, TCP_AXES, VIRTUAL, Plan, read_toml, scenario_file
from bentpipe_lab.campaign.ranges import Value
from bentpipe_lab.errors import LabError, PlanError, UnsupportedError
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.net.tcp import KernelTcp
from bentpipe_lab.programs import absent
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings, Simulation, System
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Workload

SETTING_AXES = ("controller", "initial_window")
MOST_LIMIT_S = 3600.0
"""No run takes longer, however large its bound is: a link that loses everything has one without end."""


@dataclass(frozen=True)
class Point:
    """One combination: what is run, over what."""

    clock: str
    axes: Mapping[str, Value]
    """What was chosen, by axis, without what does not apply to its system."""
    scenario_toml: str
    """The scenario, with the fields that axes set."""
    system: str
    workload: str
    settings: Settings
    tcp: Mapping[str, Value]
    """The kernel's controllers and initial windows, by axis; what is absent is the lab's."""
    options: Mapping[str, str]
    """What was chosen of the workload."""
    link: Link
    """The part of the path that its flows cross."""
    bound_s: float
    limit_s: float
    """A run may take so long."""
    cold: bool
    """Whether each run has a session of its own, which has carried nothing before."""
    neighbours: int
    """Processes that never wait, beside it."""
    simulation: Mapping[str, Any] | None = None
    """The simulator's plan, in virtual time."""

    @cached_property
    def id(self) -> str:
        """Short, unique in a campaign, the same whatever else its plan has."""
        text = json.dumps([self.clock, dict(self.axes)], sort_keys=True)
        words = re.sub(r"[^\w.]+", "-", "-".join(str(value) for value in self.axes.values()))[:48].strip("-.")
        return f"{words}-{self.clock}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def until(self) -> str | None:
        """The moment that counts, in virtual time."""
        transfer = WORKLOADS[self.workload].with_options(self.options).transfer
        return None if transfer is None else transfer.until

    @property
    def path(self) -> str:
        """The path that it needs in real time: points of one path can be measured one after the other on it."""
        needed = [self.scenario_toml, self.system, self.settings.suffix, dict(self.tcp), self.cold, self.neighbours]
        text = json.dumps(needed, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Expansion:
    """A plan's points, and what a reader should know of those that were left out."""

    points: Sequence[Point]
    notes: Sequence[str] = field(default_factory=list)


def expand(plan: Plan) -> Expansion:
    """All points, in the plan's order; a `PlanError` where axes contradict each other."""
    points: dict[str, Point] = {}
    notes: dict[str, None] = {}
    _reach_somebody(plan)
    for clock in plan.clocks:
        for axes in _combinations(plan, clock):
            system = SYSTEMS[str(axes["system"])]
            workload = WORKLOADS[str(axes["workload"])]
            applying = {
                name: value for name, value in axes.items() if _applies(name, system.name, workload.name, clock)
            }
            workload = workload.with_options(_chosen(applying))
            missing = _missing_form(clock, system, workload)
            if missing and len(plan.clocks) == 1:
                raise PlanError(f"axes contradict each other: {missing}")
            if missing:
                notes[f"left out: {missing}"] = None
                continue
            if workload.over not in system.carries:
                notes[f"left out: {workload.name} over {workload.over}, which {system.name} does not carry"] = None
                continue
            gone = [name for name in axes if name not in applying]
            for whose, names in (
                (workload.name, [name for name in gone if name.startswith("workload.")]),
                (system.name, [name for name in gone if not name.startswith("workload.")]),
            ):
                if names:
                    notes[f"{', '.join(names)}: not of {whose} in {clock} time, whose points have none"] = None
            point = _point(plan, clock, applying)
            _refuse_elsewhere(plan, point)
            points[point.id] = point
    if not points:
        raise PlanError("the plan has no points: " + "; ".join(notes))
    for point in points.values():
        if point.clock == REAL:
            notes |= dict.fromkeys(_missing_programs(point))
    return Expansion(list(points.values()), list(notes))


def _combinations(plan: Plan, clock: str) -> Iterator[dict[str, Value]]:
    cases = [{"case": [case.name], **case.axes} for case in plan.cases if clock in case.clocks]
    for of_case in cases if plan.cases else [{}]:
        axes = {**of_case, **plan.axes}
        for chosen in itertools.product(*axes.values()):
            yield dict(zip(axes, chosen, strict=True))


def _reach_somebody(plan: Plan) -> None:
    """Refuse an axis that no system of the plan has."""
    every = [plan.axes, *(case.axes for case in plan.cases)]
    systems, workloads = (
        {str(value) for axes in every for value in axes.get(axis, ())} for axis in ("system", "workload")
    )
    names = {name for axes in every for name in axes}
    for name in names:
        reached = itertools.product(systems, workloads, plan.clocks)
        if not any(_applies(name, system, workload, clock) for system, workload, clock in reached):
            whose = workloads if name.startswith("workload.") else systems
            raise PlanError(
                f"axes contradict each other: {name} is set, but {', '.join(sorted(whose))} in"
                f" {' and '.join(plan.clocks)} time has none"
            )


def _refuse_elsewhere(plan: Plan, point: Point) -> None:
    """With other hosts there are downloads by QUIC, one after the other, and nothing else."""
    if plan.hosts is None:
        return
    for what, is_so, can in (
        ("clock", point.clock, REAL),
        ("system", point.system, "direct"),
        ("workload", point.workload, "quic download"),
        ("workload.beside", point.options.get("beside", "none"), "none"),
        ("parallel", plan.parallel, 1),
    ):
        if is_so != can:
            raise PlanError(f"hosts: {what} = {is_so!r}; with client and server on other hosts it is {can!r}")


def _applies(axis: str, system: str, workload: str, clock: str) -> bool:
    if axis.startswith("workload."):
        return axis.partition(".")[2] in WORKLOADS[workload].options
    if axis in SETTING_AXES or axis.startswith("transport."):
        return SYSTEMS[system].takes_settings and (axis in SETTING_AXES or SYSTEMS[system].takes_fields)
    if axis == "session":
        return SYSTEMS[system].warms_up
    return axis not in (*TCP_AXES, "neighbours") or clock == REAL


def _missing_form(clock: str, system: System, workload: Workload) -> str | None:
    if clock not in system.clocks:
        return f"the system {system.name!r} does not run in {clock} time"
    if clock == VIRTUAL and workload.transfer is None:
        return f"the workload {workload.name!r} does not run in {clock} time"
    return None


def _missing_programs(point: Point) -> Iterator[str]:
    system, workload = SYSTEMS[point.system], WORKLOADS[point.workload].with_options(point.options)
    for name, programs in ((system.name, system.programs), (workload.name, workload.needs())):
        for program in absent(programs):
            yield f"program missing: {name} needs {program.name}: {program.remedy()}"
    for problem in KernelTcp.of(point.tcp).lacking():
        yield f"program missing: {problem}"


def _chosen(axes: Mapping[str, Value]) -> dict[str, str]:
    return {name.partition(".")[2]: str(value) for name, value in axes.items() if name.startswith("workload.")}


def _point(plan: Plan, clock: str, axes: Mapping[str, Value]) -> Point:
    options = _chosen(axes)
    system, workload = SYSTEMS[str(axes["system"])], WORKLOADS[str(axes["workload"])].with_options(options)
    file = scenario_file(plan, str(axes["scenario"]))
    changed = tuple((name.partition(".")[2], axes[name]) for name in axes if name.startswith("scenario."))
    scenario = _scenario(file, changed)
    try:
        link = system.crossed(_link(scenario))
    except LabError as error:
        raise PlanError(f"scenario {axes['scenario']}, {dict(changed)}: {error}") from error
    window = axes.get("initial_window")
    settings = Settings(
        controller=str(axes["controller"]) if "controller" in axes else None,
        initial_window=int(window) if window is not None else None,
        fields={name.partition(".")[2]: axes[name] for name in axes if name.startswith("transport.")},
    )
    cold = axes.get("session") == COLD
    bound_s = workload.bound_s(link)
    limit_s = min(_limit_s(plan.timeout, workload, link) + workload.overhead_s, MOST_LIMIT_S)
    simulation = None
    if clock == VIRTUAL:
        simulation = _simulation(plan, system, workload, tomllib.loads(scenario), link, settings, limit_s, cold=cold)
    tcp = {name: value for name, value in axes.items() if name in TCP_AXES}
    return Point(
        clock, dict(axes), scenario, system.name, workload.name, settings, tcp, options, link, bound_s, limit_s,
        cold, int(axes.get("neighbours", 0)), simulation,
    )  # fmt: skip


def _limit_s(times: float, workload: Workload, link: Link) -> float:
    """A run of a fixed length that stands still ends with it: what takes its time is to begin and to end."""
    if workload.runs_for_s is None:
        return times * workload.bound_s(link)
    return workload.runs_for_s + times * bounds.first_byte_s(link)


def _simulation(
    plan: Plan, system: System, workload: Workload, scenario: Mapping[str, Any], link: Link, settings: Settings,
    limit_s: float, *, cold: bool,
) -> Mapping[str, Any]:  # fmt: skip
    assert workload.transfer is not None
    lasts_s = workload.runs_for_s or limit_s
    request = Simulation(scenario, link, workload.transfer, settings, lasts_s, plan.sample_every, cold)
    try:
        return system.simulation(request)
    except UnsupportedError as error:
        raise PlanError(f"axes contradict each other: {error}") from error


@lru_cache(maxsize=4096)
def _scenario(file: Path, changed: tuple[tuple[str, Value], ...]) -> str:
    """A scenario's text, with fields set and with the files that it names by their whole paths."""
    table = read_toml(file)
    for name, value in changed:
        try:
            _set(table, name.split("."), value)
        except (IndexError, ValueError) as error:
            raise PlanError(f"axes.scenario.{name}: {error}, in {file.name}") from error
    _absolute(table, file.parent)
    return tomli_w.dumps(table)


def _set(place: Any, names: Sequence[str], value: Value) -> None:
    """Set one field; a number is a place in a list, the one behind its end too, and a table replaces what is none."""
    first, *further = names
    if isinstance(place, list):
        key: Any = int(first) if first.isdecimal() else len(place) + 1
        if key > len(place):
            raise IndexError(f"{first!r} is no place in a list of {len(place)}")
        if key == len(place):
            place.append({})
    else:
        key = first
    if not further:
        place[key] = value
        return
    below = place[key] if isinstance(place, list) else place.get(key)
    if not isinstance(below, dict | list):
        below = [] if further[0].isdecimal() else {}
        place[key] = below
    _set(below, further, value)


def _absolute(table: Any, directory: Path) -> None:
    if isinstance(table, list):
        for each in table:
            _absolute(each, directory)
    elif isinstance(table, dict):
        for key, value in table.items():
            if key == "file" and isinstance(value, str):
                table[key] = str((directory / value).absolute())
            else:
                _absolute(value, directory)


@lru_cache(maxsize=4096)
def _link(scenario: str) -> Link:
    """What the link model makes of a scenario."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        path = Path(directory, "scenario.toml")
        path.write_text(scenario)
        return Link.from_explanation(explain(path))
