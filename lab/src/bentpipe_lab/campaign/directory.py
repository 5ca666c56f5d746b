"""A campaign's directory: its plan, its journal, its runs, and what the journal says of them."""

import fcntl
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bentpipe_lab.campaign import journal, provenance
from bentpipe_lab.campaign.plan import Plan, parse
from bentpipe_lab.campaign.points import Expansion, Point, expand
from bentpipe_lab.campaign.store import Store
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import CampaignError, LabError
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.room import room, whole
from bentpipe_lab.terminal import command

PLAN, POINTS, PROVENANCE, JOURNAL, LOCK, PAUSE = (
    "plan.toml", "points.json", "provenance.json", "journal.jsonl", "lock", "pause",
)  # fmt: skip
RUNS, REPORT = "runs", "report"
LOCK_PATIENCE_S = 3.0
"""A process that was killed while it started another leaves its lock to that one until it has become its program."""


@dataclass(frozen=True)
class Done:
    """A run that is done."""

    run: Run
    verdict: Verdict
    figure: float | None
    """What counts of it: its time, or what its workload says."""


@dataclass(frozen=True)
class Build:
    """With what a campaign was worked on from a moment on."""

    at: str
    revision: str
    binary_sha256: str | None


@dataclass
class State:
    """What is done: the last attempt of every run, and which of them are to be tried again."""

    done: dict[tuple[str, int], Done] = field(default_factory=dict)
    again: set[tuple[str, int]] = field(default_factory=set)
    attempts: set[Run] = field(default_factory=set)
    """All of them, late ones included."""
    ended: bool = False
    paused: bool = False

    def add(self, run: Run, verdict: Verdict, figure: float | None) -> None:
        """Take note of an attempt."""
        key = (run.point, run.repetition)
        before = self.done.get(key)
        self.attempts.add(run)
        if before is None or before.run.attempt <= run.attempt:
            self.done[key] = Done(run, verdict, figure)
            self.again.discard(key)

    def verdicts(self) -> Counter[Verdict]:
        """How many runs ended how."""
        return Counter(done.verdict for done in self.done.values())


@dataclass
class Campaign:
    """A campaign that was begun."""

    directory: Path
    plan: Plan
    store_url: str

    @property
    def store(self) -> Store:
        """Where its runs are."""
        return Store(self.store_url)

    def expansion(self) -> Expansion:
        """Its points; the same as when it was begun, or an error."""
        expansion = expand(self.plan)
        begun = {entry["id"]: entry["scenario"] for entry in self.points()}
        if {point.id for point in expansion.points} != set(begun):
            raise CampaignError(
                f"{self.directory}: the plan has other points than when it was begun; begin another campaign with it"
            )
        for point in expansion.points:
            if point.scenario_toml != begun[point.id]:
                raise CampaignError(
                    f"{self.directory}: the scenario {point.axes['scenario']} is another than when it was begun"
                    f" ({self.directory / POINTS} has it); put it back, or begin another campaign with it"
                )
        return expansion

    def state(self) -> State:
        """What the journal says; a line that does not say all of a run is none, and its directory tells of it."""
        state = State()
        for event in journal.read(self.directory / JOURNAL):
            with suppress(KeyError, ValueError):
                match event["event"]:
                    case "run":
                        run = Run(event["point"], event["repetition"], event["attempt"])
                        state.add(run, Verdict(event["verdict"]), event.get("figure", event["seconds"]))
                    case "retry":
                        state.again.add((event["point"], event["repetition"]))
                    case "ended" | "paused" | "running":
                        state.ended, state.paused = event["event"] == "ended", event["event"] == "paused"
        return state

    def builds(self) -> Iterator[Build]:
        """With what it was worked on, each time that it was begun or gone on with."""
        for event in journal.read(self.directory / JOURNAL):
            if event["event"] == "running" and "revision" in event:
                yield Build(event["at"], event["revision"], event["binary_sha256"])

    def gone(self, state: State) -> list[Done]:
        """Runs that the journal has, but whose directories somebody has removed."""
        there = set(self.store.complete())
        return [done for done in state.done.values() if done.run not in there]

    def points(self) -> list[dict[str, Any]]:
        """Its points as they were when it was begun."""
        points: list[dict[str, Any]] = _begun_with(self.directory)["points"]
        return points

    def running(self) -> bool:
        """Whether a process works on it now; its directory may be one that nobody can write to."""
        try:
            lock = (self.directory / LOCK).open()
        except FileNotFoundError:
            return False
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def held(self) -> AbstractContextManager[None]:
        """Keep it to this process; an error when another has it."""
        return _held(self.directory)


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    with (directory / LOCK).open("a") as lock:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CampaignError(f"{directory} is being worked on by another process") from None
                time.sleep(0.05)
        yield


def refuse_begun(directory: Path) -> None:
    """Raise where a campaign was begun before: nothing of it is written over."""
    if (directory / PLAN).exists() or (directory / JOURNAL).exists():
        raise CampaignError(
            f"{directory} holds a campaign that was begun: `{command('resume', directory)}` goes on with it;"
            " give another --out to begin anew"
        )


def begin(plan: Plan, expansion: Expansion, directory: Path, store_url: str | None) -> Campaign:
    """Begin a campaign in a directory where there is none yet; of two who try it at once, one does."""
    refuse_begun(directory)
    kept = RUNS if store_url is None else _anywhere(store_url)
    url = _store(directory, kept)
    if store_url is not None:
        Store(url).tried()
    table = {
        "store": kept,
        "plan_directory": str(plan.directory.absolute()),
        "points": [_entry(point) for point in expansion.points],
    }
    with room(directory, "begin it again"):
        directory.mkdir(parents=True, exist_ok=True)
    with room(directory, "begin it again"), _held(directory):
        refuse_begun(directory)
        (directory / POINTS).write_text(json.dumps(table, indent=1) + "\n")
        (directory / PROVENANCE).write_text(json.dumps(provenance.of_campaign(plan.text), indent=1) + "\n")
        # Last: a directory with a plan is one that was begun.
        with whole(directory / PLAN) as part:
            part.write_text(plan.text)
    return Campaign(directory, plan, url)


def opened(directory: Path) -> Campaign:
    """A campaign that was begun before."""
    if not ((directory / PLAN).exists() and (directory / POINTS).exists()):
        raise CampaignError(f"{directory} holds no campaign; `bentpipe-lab run PLAN --out {directory}` begins one")
    table = _begun_with(directory)
    try:
        plan = parse((directory / PLAN).read_text(), Path(table["plan_directory"]))
    except LabError as error:
        raise CampaignError(f"{directory / PLAN}: {error}") from error
    return Campaign(directory, plan, _store(directory, table["store"]))


def _anywhere(store_url: str) -> str:
    """A store as it is named from any working directory."""
    return store_url if "://" in store_url or "::" in store_url else str(Path(store_url).absolute())


def _store(directory: Path, kept: str) -> str:
    """Where runs are: those that a campaign keeps in its own directory are moved with it."""
    return str((directory / RUNS).absolute()) if kept == RUNS else kept


def provenance_of(directory: Path) -> dict[str, Any]:
    """With what a campaign was begun."""
    return _table(directory / PROVENANCE, "with what it was begun")


def _begun_with(directory: Path) -> dict[str, Any]:
    """What was written down of its points and places when it was begun."""
    return _table(directory / POINTS, "what was run")


def _table(file: Path, told: str) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CampaignError(f"{file} is damaged, and says no more {told}: {error}") from error
    if not isinstance(table, dict):
        raise CampaignError(f"{file} is damaged, and says no more {told}: it is no table")
    return table


def _entry(point: Point) -> Mapping[str, Any]:
    return {
        "id": point.id,
        "clock": point.clock,
        "axes": dict(point.axes),
        "system": point.system,
        "settings": point.settings.suffix,
        "workload": point.workload,
        "bound_s": point.bound_s,
        "limit_s": point.limit_s,
        "scenario": point.scenario_toml,
    }
