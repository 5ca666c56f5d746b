"""A campaign's plan: one TOML file for virtual and for real time, read and checked."""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w

from bentpipe_lab.campaign.ranges import Value, is_range, values
from bentpipe_lab.errors import PlanError
from bentpipe_lab.hosts.table import Hosts
from bentpipe_lab.net import host
from bentpipe_lab.net.topology import NODES
from bentpipe_lab.records import published
from bentpipe_lab.registry import unknown
from bentpipe_lab.size import size
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.workloads import WORKLOADS

VIRTUAL, REAL = "virtual", "real"
CLOCKS = (VIRTUAL, REAL)
TCP_AXES = tuple(
    f"{node}{setting}"
    for setting in ("tcp_controller", "tcp_initial_window", "tcp_buffer")
    for node in ("", *(f"{node}." for node in NODES))
)
"""The kernel's congestion controller, initial window and largest socket buffer, at all nodes or at one."""
COLD, WARM = "cold", "warm"
SESSIONS = (COLD, WARM)
"""A session for each run, which carries nothing before it; or one that has carried the warm-up, for many."""
MOST_NEIGHBOURS = 256
PLAIN_AXES = (
    "scenario", "system", "workload", "controller", "initial_window", "session", "neighbours", *TCP_AXES,
)  # fmt: skip
FIELD_AXES = ("scenario.", "transport.", "workload.")
"""Any field of the scenario, any of the [transport] table of both ends, and any option of a workload."""
KEYS = (
    "name", "source", "published", "clock", "repetitions", "order", "timeout", "pause", "parallel", "late_repeats",
    "sample_every", "axes", "case", "quick", "hosts",
)  # fmt: skip
MOST_RUNS = 1_000_000
QUICK = "-quick"
"""Ends the name of a plan's quick form."""
_WINDOW = re.compile(r"^([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)$")


@dataclass(frozen=True)
class Repetitions:
    """How often each point is run: `least` times, and further until the interval is narrow, `most` times at most."""

    least: int
    most: int
    relative_width: float | None = None
    """The 95 % interval of the median may be this wide, as a share of the median; None for a fixed count."""


@dataclass(frozen=True)
class Case:
    """Values of several axes that belong together, and axes of its own."""

    name: str
    axes: Mapping[str, Sequence[Value]]
    clocks: Sequence[str]
    """On which it is run."""


@dataclass(frozen=True)
class PauseWindow:
    """A time of day, local time, in which nothing is started; minutes since midnight, possibly over midnight."""

    begin: int
    end: int

    def holds(self, minute: int) -> bool:
        """Whether a minute of the day lies in it."""
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


@dataclass(frozen=True)
class Plan:
    """What a campaign measures, and how."""

    name: str
    source: str
    published: str | None
    """Whose figures the report puts beside these: a name of `records/data/`."""
    clocks: Sequence[str]
    axes: Mapping[str, Sequence[Value]]
    cases: Sequence[Case]
    repetitions: Repetitions
    shuffle: int | None
    """Seed of the order of runs; None is the order of the plan."""
    rounds: bool
    """Whether all first repetitions come before the second ones, in real time: a campaign that is interrupted has then
    measured every point about equally often."""
    timeout: float
    """A run may take so many times its physical bound, one of a fixed length so many times the first byte's
    beside it."""
    pause: Sequence[PauseWindow]
    parallel: int | None
    """Paths in real time that are measured side by side; None leaves it to what the machine can do."""
    late_repeats: int
    """How often a run in which the emulator was late is repeated."""
    sample_every: str
    text: str = field(repr=False)
    directory: Path
    """Where the plan lies: files it names are relative to it."""
    hosts: Hosts | None = None
    """Where client and server are, if not on this machine."""


def read(path: Path, *, quick: bool = False) -> Plan:
    """Read a plan's file; in its quick form, what its [quick] table says counts instead. Both have to be right."""
    text = _text(path)
    try:
        whole = parse(text, path.parent)
        if not quick and "quick" not in tomllib.loads(text):
            return whole
        quick_form = _quick(text)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    try:
        of_quick = parse(quick_form, path.parent)
    except PlanError as error:
        raise PlanError(f"{path}: [quick]: {error}") from error
    return of_quick if quick else whole


def read_toml(path: Path) -> dict[str, Any]:
    """A file's table, or a `PlanError` that names the file."""
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{path}: not TOML: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path} cannot be read: it is not UTF-8: {error}") from error


def parse(text: str, directory: Path) -> Plan:
    """Read a plan's text; `directory` is where files that it names are looked for first."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"not TOML: {error}") from error
    for key in table:
        if key not in KEYS:
            raise PlanError(str(unknown("field", key, dict.fromkeys(KEYS))))
    name = table.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,80}", name):
        raise PlanError(f"name = {name!r}: give a name of letters, digits, dots and dashes")
    axes = _axes(table.get("axes"))
    clocks = _clocks(table.get("clock", VIRTUAL))
    cases = _cases(table.get("case", []), axes, clocks)
    for required in ("scenario", "system", "workload"):
        if required not in axes and not (cases and all(required in case.axes for case in cases)):
            raise PlanError(f"axes.{required} is missing: give one value or a list")
    shuffle, rounds = _order(table.get("order", {"shuffle": 1}))
    plan = Plan(
        name=name,
        source=str(table.get("source", "")),
        published=_published(table.get("published")),
        clocks=clocks,
        axes=axes,
        cases=cases,
        repetitions=_repetitions(table.get("repetitions", 1)),
        shuffle=shuffle,
        rounds=rounds,
        timeout=_number("timeout", table.get("timeout", 20), 1.5, 10_000),
        pause=_pause(table.get("pause", [])),
        parallel=_whole("parallel", table["parallel"], 1, 256) if "parallel" in table else None,
        late_repeats=_whole("late_repeats", table.get("late_repeats", 5), 0, 100),
        sample_every=str(table.get("sample_every", "1 s")),
        text=text,
        directory=directory,
        hosts=Hosts.parse(table["hosts"], directory) if "hosts" in table else None,
    )
    _count(plan)
    return _one_after_the_other(plan)


def _quick(text: str) -> str:
    """A plan's quick form, as a plan: fields of its [quick] table replace others, axes and cases included."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"not TOML: {error}") from error
    changed = table.pop("quick", None)
    if not isinstance(changed, Mapping):
        raise PlanError("the plan has no quick form: give it a [quick] table with the fields that are others there")
    axes = {**dict(_flat(table.get("axes", {}))), **dict(_flat(changed.get("axes", {})))}
    axes = {name: value for name, value in axes.items() if value != "none"}
    return tomli_w.dumps({**table, **changed, "name": f"{table.get('name')}{QUICK}", "axes": axes})


def _published(given: Any) -> str | None:
    if given is None:
        return None
    known = dict.fromkeys(published.names())
    if given not in known:
        raise PlanError(f"published: {unknown('study', str(given), known)}")
    return str(given)


def _axes(given: Any) -> dict[str, Sequence[Value]]:
    if not isinstance(given, Mapping):
        raise PlanError("[axes] is missing: it names scenarios, systems and workloads, and whatever else is varied")
    found: dict[str, Sequence[Value]] = {axis: values(axis, value) for axis, value in _flat(given)}
    for axis, its_values in found.items():
        _known(axis, its_values)
    if "transport.controller" in found and "controller" in found:
        raise PlanError("axes.controller and axes.transport.controller contradict each other: leave one out")
    if "transport.initial_window" in found and "initial_window" in found:
        raise PlanError("axes.initial_window and axes.transport.initial_window contradict each other: leave one out")
    return found


def _flat(given: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names for tables in tables."""
    found: list[tuple[str, Any]] = []
    for key, value in given.items():
        if isinstance(value, Mapping) and not is_range(value):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _known(axis: str, its_values: Sequence[Value]) -> None:
    if axis not in PLAIN_AXES and not axis.startswith(FIELD_AXES):
        known = dict.fromkeys([*PLAIN_AXES, *(f"{prefix}FIELD" for prefix in FIELD_AXES)])
        raise PlanError(str(unknown("axis", axis, known)))
    match axis:
        case "system":
            for value in its_values:
                SYSTEMS[str(value)]
        case "workload":
            for value in its_values:
                WORKLOADS[str(value)]
        case "session":
            for value in its_values:
                if value not in SESSIONS:
                    raise PlanError(f"axes.session: {unknown('session', str(value), dict.fromkeys(SESSIONS))}")
        case "neighbours":
            for value in its_values:
                _whole(f"axes.{axis}", value, 0, MOST_NEIGHBOURS)
        case _ if axis.startswith("workload."):
            _option(axis.removeprefix("workload."), its_values)
        case _ if axis in TCP_AXES and axis.endswith("tcp_buffer"):
            for value in its_values:
                try:
                    size(str(value))
                except ValueError as error:
                    raise PlanError(f"axes.{axis} = {value!r}: {error}") from error
        case _ if axis in ("initial_window", *TCP_AXES) and axis.endswith("initial_window"):
            for value in its_values:
                _whole(f"axes.{axis}", value, 1, 100_000)


def _option(name: str, its_values: Sequence[Value]) -> None:
    """Refuse an option that no workload has; which values are right depends on the workload."""
    known = {option: None for workload in WORKLOADS for option in workload.options}
    if name not in known:
        raise PlanError(f"axes.workload: {unknown('option', name, known)}")
    if any(isinstance(value, bool) for value in its_values):
        raise PlanError(f"axes.workload.{name}: give texts or numbers")


def _cases(given: Any, axes: Mapping[str, Sequence[Value]], clocks: Sequence[str]) -> list[Case]:
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise PlanError("case: give [[case]] tables, each with a name and the values that it sets")
    cases: list[Case] = []
    for table in given:
        fields = dict(table)
        name = fields.pop("name", None)
        if not isinstance(name, str) or name in {case.name for case in cases}:
            raise PlanError(f"case: name = {name!r}: give each [[case]] a name of its own")
        its_clocks = _clocks(fields.pop("clock", list(clocks)))
        for clock in its_clocks:
            if clock not in clocks:
                raise PlanError(f"case {name!r}: clock = {clock!r}, which the plan's clock does not have")
        its_axes: dict[str, Sequence[Value]] = {}
        for axis, value in _flat(fields):
            if axis in axes:
                raise PlanError(f"case {name!r} and axes contradict each other: both set {axis}; leave one out")
            its_axes[axis] = values(axis, value)
            _known(axis, its_axes[axis])
        cases.append(Case(name, its_axes, its_clocks))
    return cases


def _clocks(given: Any) -> list[str]:
    clocks = list(given) if isinstance(given, list) else [given]
    for clock in clocks:
        if clock not in CLOCKS:
            raise PlanError(str(unknown("clock", str(clock), dict.fromkeys(CLOCKS))))
    if not clocks or len(set(clocks)) < len(clocks):
        raise PlanError('clock: give "virtual", "real", or both in a list')
    return clocks


def _repetitions(given: Any) -> Repetitions:
    if isinstance(given, int) and not isinstance(given, bool):
        count = _whole("repetitions", given, 1, 10_000)
        return Repetitions(count, count)
    if not isinstance(given, Mapping) or set(given) - {"least", "most", "until"} or "until" not in given:
        raise PlanError('repetitions: give a number, or { least = 5, most = 40, until = "5 %" }')
    least = _whole("repetitions.least", given.get("least", 5), 2, 10_000)
    most = _whole("repetitions.most", given.get("most", 8 * least), least, 10_000)
    text = str(given["until"])
    if not re.fullmatch(r"\d+(\.\d+)? ?%", text) or float(text.rstrip("% ")) <= 0:
        raise PlanError(f'repetitions.until = {text!r}: give a width of the interval as a percentage, like "5 %"')
    return Repetitions(least, most, float(text.rstrip("% ")) / 100)


def _order(given: Any) -> tuple[int | None, bool]:
    """The seed, and whether runs go in rounds."""
    if given == "as written":
        return None, False
    if isinstance(given, Mapping) and {"shuffle"} <= set(given) <= {"shuffle", "rounds"}:
        seed, rounds = given["shuffle"], given.get("rounds", False)
        if type(seed) is int and type(rounds) is bool:
            return seed, rounds
    raise PlanError('order: give "as written", or { shuffle = 1 } with a seed, and rounds = true where wanted')


def _pause(given: Any) -> list[PauseWindow]:
    found = []
    for text in given if isinstance(given, list) else [given]:
        match = _WINDOW.match(str(text))
        if match is None:
            raise PlanError(f'pause: {text!r}: give times of day, like "08:00-18:00"')
        begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
        if begin == end:
            raise PlanError(f"pause: {text!r} has no length: nothing, or the whole day?")
        found.append(PauseWindow(begin, end))
    if all(any(window.holds(minute) for window in found) for minute in range(24 * 60)) and found:
        raise PlanError("pause: the windows leave no minute of the day to measure in")
    return found


def _whole(name: str, given: Any, least: int, most: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise PlanError(f"{name} = {given!r}: give a whole number from {least} to {most}")
    return given


def _number(name: str, given: Any, least: float, most: float) -> float:
    if not isinstance(given, int | float) or isinstance(given, bool) or not least <= given <= most:
        raise PlanError(f"{name} = {given!r}: give a number from {least} to {most}")
    return float(given)


def _count(plan: Plan) -> None:
    """Refuse more runs than anybody waits for, before any of them is written down."""
    count = plan.repetitions.most * math.prod(map(len, plan.axes.values()))
    count *= sum(len(case.clocks) * math.prod(map(len, case.axes.values())) for case in plan.cases) or len(plan.clocks)
    if count > MOST_RUNS:
        sizes = ", ".join(f"{axis} has {len(its_values)}" for axis, its_values in plan.axes.items())
        raise PlanError(f"{count} runs ({sizes}, repetitions {plan.repetitions.most}); {MOST_RUNS} are the most")


def _one_after_the_other(plan: Plan) -> Plan:
    """Paths are not measured side by side where some have neighbours, who would be those of all, or on other hosts."""
    neighbours = any("neighbours" in axes for axes in (plan.axes, *(case.axes for case in plan.cases)))
    if neighbours and (plan.parallel or 1) > 1:
        raise PlanError(f"parallel = {plan.parallel}, but neighbours of one path slow the others: give parallel = 1")
    alone = neighbours or plan.hosts is not None
    return replace(plan, parallel=1) if alone and plan.parallel is None else plan


@cache
def _shipped() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted((host.REPOSITORY / "scenarios").glob("*.toml"))}


def scenario_file(plan: Plan, name: str) -> Path:
    """The file of a scenario: a path beside the plan, or the name of one that is shipped."""
    beside = plan.directory / name
    if beside.suffix == ".toml" and beside.is_file():
        return beside
    shipped = _shipped()
    if name not in shipped:
        raise PlanError(str(unknown("scenario", name, shipped)))
    return shipped[name]
