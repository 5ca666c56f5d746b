"""The engine of a campaign: units out to Dask's workers, results into the journal, until nothing is open."""

import json
import logging
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import FrameType
from typing import Any

import dask
import distributed
from distributed.comm import CommClosedError

from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign import leftovers, provenance, schedule, side_by_side, work
from bentpipe_lab.campaign.directory import Campaign, State
from bentpipe_lab.campaign.journal import SCHEMA, Journal
from bentpipe_lab.campaign.plan import REAL, VIRTUAL
from bentpipe_lab.campaign.points import Point
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.campaign.store import RESULT, RESULT_SCHEMA, RESUME, Store
from bentpipe_lab.campaign.unit import Run, Unit
from bentpipe_lab.errors import DiskFullError, LabError
from bentpipe_lab.net import host, processors
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads import WORKLOADS

LOOK_S = 0.25
"""How often the engine looks at what else is asked of it."""
SIMULATIONS = 2
"""Units in virtual time side by side: each uses all processors, but for its beginning and its end."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
WORKERS_S = 60
"""How long a scheduler may be without a worker."""
SCAN_S = 2.0
"""How often it looks for runs of units that are not done."""
UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
}
"""Dask samples workers in this process 100 times a second for its dashboard, which they have not."""


class Ending(StrEnum):
    """How a campaign's execution ended."""

    DONE = "done"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"


@dataclass
class Engine:
    """One execution of a campaign, in this process."""

    campaign: Campaign
    progress: Progress
    journal: Journal
    points: dict[str, Point]
    state: State
    widths: Mapping[str, int]
    """How many units are done side by side, by clock."""
    flying: dict[Any, Unit] = field(default_factory=dict)
    interrupted: bool = False

    def run(self, client: distributed.Client) -> Ending:
        """Work until nothing is open, somebody asks to pause, or the disk is full."""
        store = self.campaign.store
        self._reconcile(store)
        used = {"revision": provenance.revision(), "binary_sha256": provenance.binary_sha256()}
        self.journal.append("running", schema=SCHEMA, at=provenance.now(), workers=self.widths, **used)
        while True:
            units = self._open_units()
            if not units:
                self.journal.append("ended", at=provenance.now())
                return Ending.DONE
            self.progress.expect(sum(len(each.runs) for each in units), sum(map(self._on_the_clock_s, units)))
            queue = list(reversed(units))
            ending = self._round(client, store, queue)
            if ending is not None:
                self.journal.append("paused", at=provenance.now(), by=ending)
                return ending

    def _round(self, client: distributed.Client, store: Store, queue: list[Unit]) -> Ending | None:
        """Do the units of a queue; None when all are done."""
        scanned = time.monotonic()
        while queue or self.flying:
            stopping = self._asked_to_stop()
            while self._may_launch(queue) and stopping is None and not self._in_pause_window():
                each = queue.pop()
                future = client.submit(work.work, each, self.campaign.store_url, pure=False)
                self.flying[future] = each
                self.progress.begun(each.name, self._on_the_clock_s(each), schedule.estimate_s(self.points, each))
            if stopping is Ending.INTERRUPTED:
                work.STOP.set()
            if stopping is not None and not self.flying:
                return stopping
            if not self.flying:
                time.sleep(LOOK_S)
                continue
            with suppress(TimeoutError):
                distributed.wait(list(self.flying), timeout=LOOK_S, return_when="FIRST_COMPLETED")
            for future in [future for future in self.flying if future.done()]:
                queue += self._landed(store, future)
            if time.monotonic() - scanned > SCAN_S:
                scanned = time.monotonic()
                self._scan(store)
            self.progress.show()
        return None

    def _may_launch(self, queue: list[Unit]) -> bool:
        """Whether the next unit may begin: real time is never measured beside virtual time, which takes all cores."""
        return (
            bool(queue)
            and len(self.flying) < self.widths[queue[-1].clock]
            and {each.clock for each in self.flying.values()} <= {queue[-1].clock}
        )

    def _landed(self, store: Store, future: Any) -> list[Unit]:
        """Take the results of a unit that is done; the parts of it that are to be tried on their own."""
        each = self.flying.pop(future)
        try:
            results = future.result()
        except (DiskFullError, CancelledError, CommClosedError):
            # Without room, or without the scheduler, no further unit would do better.
            raise
        except Exception as error:
            self._scan_unit(store, each)
            return self._failed(store, each, error)
        for result in results:
            self._note(result)
        self.progress.landed(each.name)
        return []

    def _failed(self, store: Store, each: Unit, error: Exception) -> list[Unit]:
        """A unit that broke: its points one by one, and one that broke alone is a failure of its runs."""
        left = [run for run in each.runs if run not in self.state.attempts]
        names = list(dict.fromkeys(run.point for run in left))
        if len(names) > 1 and each.clock == VIRTUAL:
            plan = self.campaign.plan
            alone = [(self.points[name], [run for run in left if run.point == name]) for name in names]
            return [unit for point, runs in alone for unit in schedule.units(plan, [point], runs)]
        for run in left:
            result = {
                "schema": RESULT_SCHEMA,
                "point": run.point,
                "repetition": run.repetition,
                "attempt": run.attempt,
                "verdict": Verdict.FAILED,
                "detail": f"{type(error).__name__}: {error}",
                "seconds": None,
                "bytes_received": 0,
                "metrics": {},
                "bound_s": self.points[run.point].bound_s,
            }
            store.put(run, {RESULT: json.dumps(result, indent=1) + "\n"})
            self._note(result)
        self.progress.landed(each.name)
        return []

    def _on_the_clock_s(self, each: Unit) -> float:
        return schedule.on_the_clock_s(self.points, each, self.widths[REAL])

    def _open_units(self) -> list[Unit]:
        plan = self.campaign.plan
        runs = schedule.open_runs(plan, list(self.points.values()), self.state)
        return schedule.units(plan, list(self.points.values()), runs)

    def _reconcile(self, store: Store) -> None:
        """Make directories and journal agree: runs that it has not, and runs that it has and that are gone."""
        for run in sorted(store.complete(), key=lambda run: (run.point, run.repetition, run.attempt)):
            if run.point in self.points:
                self._note(store.result(run))
        for done in self.campaign.gone(self.state):
            self.journal.append(
                "retry", at=provenance.now(), point=done.run.point, repetition=done.run.repetition, why="gone"
            )
            self.state.again.add((done.run.point, done.run.repetition))

    def _scan(self, store: Store) -> None:
        """Take runs that are done of units that are not; units in virtual time come in whole."""
        for each in self.flying.values():
            if each.clock == REAL:
                self._scan_unit(store, each)

    def _scan_unit(self, store: Store, each: Unit) -> None:
        for run in each.runs:
            attempt = run
            while True:
                if attempt not in self.state.attempts:
                    if not store.has(attempt):
                        break
                    self._note(store.result(attempt))
                attempt = Run(attempt.point, attempt.repetition, attempt.attempt + 1)

    def _note(self, result: dict[str, Any]) -> None:
        run = Run(result["point"], result["repetition"], result["attempt"])
        if run in self.state.attempts:
            return
        verdict = Verdict(result["verdict"])
        workload = WORKLOADS[self.points[run.point].workload]
        figure = workload.figure(result["seconds"], result.get("metrics", {}))
        fields = {"point": run.point, "repetition": run.repetition, "attempt": run.attempt}
        self.journal.append(
            "run", at=provenance.now(), **fields, verdict=verdict, seconds=result["seconds"], figure=figure
        )
        self.state.add(run, verdict, figure)
        self.progress.note(run, verdict, str(result["detail"]))

    def _asked_to_stop(self) -> Ending | None:
        if self.interrupted:
            return Ending.INTERRUPTED
        if (self.campaign.directory / directories.PAUSE).exists():
            return Ending.PAUSED
        return None

    def _in_pause_window(self) -> bool:
        clock = datetime.now().astimezone()
        waiting = any(window.holds(clock.hour * 60 + clock.minute) for window in self.campaign.plan.pause)
        self.progress.waiting(waiting)
        return waiting


def execute(campaign: Campaign, progress: Progress, scheduler: str | None = None) -> Ending:
    """Work on a campaign until it is done or asked to stop; `scheduler` is the address of a Dask scheduler."""
    # What a worker could not do is a verdict with its evidence, and needs no traceback on the terminal; some of the
    # library's loggers have levels of their own.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    expansion = campaign.expansion()
    points = {point.id: point for point in expansion.points}
    real = any(point.clock == REAL for point in expansion.points)
    # What the engine does beside runs in real time holds no emulator up; simulations want every processor.
    virtual = any(point.clock == VIRTUAL for point in expansion.points)
    paths = side_by_side.choice(campaign.plan).paths
    with (
        campaign.held(),
        nullcontext() if virtual or scheduler is not None else processors.kept_from_emulators(alone=paths == 1),
        _handlers_put_back() as engines,
        _workers(scheduler, paths) as (client, widths),
    ):
        (campaign.directory / directories.PAUSE).unlink(missing_ok=True)
        if real and scheduler is None:
            host.require()
        if scheduler is None:
            leftovers.clean()
        journal = Journal(campaign.directory / directories.JOURNAL)
        engine = Engine(campaign, progress, journal, points, campaign.state(), widths)
        still = schedule.open_runs(campaign.plan, expansion.points, engine.state)
        engines.append(engine)
        progress.begin(len(engine.state.done.keys() - {(run.point, run.repetition) for run in still}))
        try:
            _interruptible(engine)
            if scheduler is not None:
                _asked(client, progress)
                client.run(leftovers.clean, on_error="return")
            with progress:
                return engine.run(client)
        except (CancelledError, CommClosedError) as error:
            raise LabError(f"the Dask scheduler at {scheduler} is gone; {RESUME} goes on without it") from error
        finally:
            work.STOP.set()
            with suppress(CancelledError, CommClosedError):
                distributed.wait(list(engine.flying))
            work.STOP.clear()
            journal.close()


@contextmanager
def _workers(scheduler: str | None, paths: int) -> Iterator[tuple[distributed.Client, Mapping[str, int]]]:
    """Dask's workers: threads of this process, or those of a scheduler elsewhere; and how many units they take."""
    if scheduler is None:
        widths = {VIRTUAL: SIMULATIONS, REAL: paths}
        with (
            dask.config.set(UNWATCHED),
            distributed.Client(
                processes=False, n_workers=1, threads_per_worker=max(widths.values()), dashboard_address=None
            ) as client,
        ):
            yield client, widths
        return
    try:
        client = distributed.Client(scheduler, timeout="10 s")
    except (OSError, ValueError) as error:
        raise LabError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError as error:
            raise LabError(
                f"the Dask scheduler at {scheduler} has no workers; on each machine that is to be one, with this"
                f" checkout: `python -m distributed.cli.dask_worker {scheduler}`"
            ) from error
        yield client, dict.fromkeys((VIRTUAL, REAL), max(1, sum(client.nthreads().values())))


def _asked(client: distributed.Client, progress: Progress) -> None:
    """Ask each worker for its build: one without the lab does nothing, one with another build may do another thing."""
    own = provenance.build()
    for worker, build in client.run(provenance.build, on_error="return").items():
        if isinstance(build, BaseException):
            raise LabError(f"the worker {worker} cannot do runs: {type(build).__name__}: {build}") from build
        if build != own:
            progress.console.print(f"the worker {worker} has another build than this process: {build}", highlight=False)


@contextmanager
def _handlers_put_back() -> Iterator[list[Engine]]:
    """Signals are what they were before when all is closed; until then another Ctrl-C breaks nothing off.

    Nor does it when one of the engines was interrupted: nothing is left then but to tell how far the campaign is.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    engines: list[Engine] = []
    try:
        yield engines
    finally:
        interrupted = any(engine.interrupted for engine in engines)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if interrupted else handler)


def _interruptible(engine: Engine) -> None:
    """Ctrl-C and SIGTERM end the campaign in order: what is in flight is stopped, what is done is kept."""

    def end(_number: int, _frame: FrameType | None) -> None:
        engine.interrupted = True

    for number in SIGNALS:
        signal.signal(number, end)
