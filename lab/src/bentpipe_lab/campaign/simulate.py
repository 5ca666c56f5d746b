"""Execution of a unit in virtual time: its points as one plan of `bentpipe sim`, its runs kept one by one."""

import hashlib
import itertools
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from bentpipe_lab import scratch
from bentpipe_lab.campaign import provenance
from bentpipe_lab.campaign.provenance import Watch
from bentpipe_lab.campaign.store import PROVENANCE, RECORDS, RESULT, RESULT_SCHEMA, SAMPLES, Store
from bentpipe_lab.campaign.unit import LEAST_PATIENCE_S, Run, Unit
from bentpipe_lab.errors import DiskFullError, ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.net.process import ENDS_WITH_US
from bentpipe_lab.records import parts, simulation
from bentpipe_lab.room import is_full, lacks_room

POLL_S = 0.05
LOOK_S = 1.0
"""How often it is looked whether the simulator has written something."""
SOME_BROKE = 1
"""The simulator's exit code when it has done all runs, but for some that broke it; of other errors, too."""
MOST_ENDLESS = 3
"""Runs of one point that are waited for in vain; each takes the patience of a whole unit."""


class _SilentError(ProgramError):
    """The simulator did not end, and nothing came of it any more."""


def execute(unit: Unit, store: Store, stop: threading.Event) -> list[dict[str, Any]]:
    """Do the runs that the store does not have yet; the results of all that are done, in the unit's order."""
    open_runs = [run for run in unit.runs if not store.has(run)]
    if open_runs:
        try:
            _simulate(unit, open_runs, store, stop)
        except _SilentError:
            _apart(unit, store, stop)
    return [store.result(run) for run in unit.runs if store.has(run)]


def check(unit: Unit) -> None:
    """Have the simulator read the unit's points, for next to no simulated time; raise with what it says."""
    cases = {point: {**essence["simulation"], "until": "1 ms"} for point, essence in unit.points.items()}
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        _, problem = _run(_plan(cases, 1, 1), Path(directory), threading.Event(), LEAST_PATIENCE_S)
        if problem is not None:
            raise problem


def _apart(unit: Unit, store: Store, stop: threading.Event) -> None:
    """The runs of a unit that came to no end: its points one by one, and the runs of one that has no end, too."""
    of_point: dict[str, list[Run]] = {}
    for run in unit.runs:
        if not store.has(run):
            of_point.setdefault(run.point, []).append(run)
    for runs in of_point.values():
        try:
            if len(of_point) > 1:
                _simulate(unit, runs, store, stop)
                continue
        except _SilentError:
            pass
        _one_by_one(unit, [run for run in runs if not store.has(run)], store, stop)


def _one_by_one(unit: Unit, runs: list[Run], store: Store, stop: threading.Event) -> None:
    """The runs of one point, each by itself."""
    endless: list[int] = []
    for run in sorted(runs, key=lambda run: run.repetition):
        if stop.is_set():
            return
        watch = Watch()
        if len(endless) >= MOST_ENDLESS:
            seeds = ", ".join(map(str, endless))
            detail = f"not simulated: the simulator did not end seeds {seeds} of this point, and more were not tried"
        else:
            try:
                _simulate(unit, [run], store, stop)
                continue
            except _SilentError as error:
                endless.append(run.repetition)
                detail = str(error)
        _keep(
            unit, run, simulation.SimulatedRun(run.point, run.repetition, detail), store, provenance.of_run(watch, [])
        )


def _simulate(unit: Unit, open_runs: list[Run], store: Store, stop: threading.Event) -> None:
    wanted = {(run.point, run.repetition): run for run in open_runs}
    cases = {point: unit.points[point]["simulation"] for point in dict.fromkeys(run.point for run in open_runs)}
    seeds = [run.repetition for run in open_runs]
    plan = _plan(cases, min(seeds), max(seeds))
    with scratch.directory() as directory:
        watch = Watch()
        command, problem = _run(plan, directory, stop, unit.patience_s)
        if stop.is_set():
            return  # its last run may not be whole
        used = provenance.of_run(watch, command)
        silent = isinstance(problem, _SilentError)
        if problem is not None and not silent and not wanted.keys() <= _there(directory / RECORDS):
            raise problem
        found = simulation.runs(directory / RECORDS)
        for simulated in _all_but_the_last(found) if silent else found:
            run = wanted.get((simulated.case, simulated.seed))
            if run is not None:
                _keep(unit, run, simulated, store, used)
        if silent:
            assert problem is not None
            raise problem


def _all_but_the_last(runs: Iterator[simulation.SimulatedRun]) -> Iterator[simulation.SimulatedRun]:
    """Of a simulator that was ended; the last run may not be whole."""
    return (before for before, _ in itertools.pairwise(runs))


def _there(records: Path) -> set[tuple[str, int]]:
    """The runs that the simulator wrote of, those that broke it included."""
    return {(each.case, each.seed) for each in simulation.runs(records)} if records.exists() else set()


def _plan(cases: Mapping[str, Mapping[str, Any]], first: int, last: int) -> str:
    """Every point is a case that has everything of its own, and all of these seeds."""
    cases_of_it = [{"name": point, **plan} for point, plan in cases.items()]
    return tomli_w.dumps({"name": "campaign", "first_seed": first, "seeds": last - first + 1, "case": cases_of_it})


def _run(plan: str, directory: Path, stop: threading.Event, patience_s: float) -> tuple[list[str], ProgramError | None]:
    """Run the simulator to its end, until somebody asks to stop, or until nothing has come of it for too long.

    Its command line, and what it broke at.
    """
    file = directory / "plan.toml"
    file.write_text(plan)
    command = [str(host.binary()), "sim", str(file), "--out", str(directory)]
    silent = False
    with (directory / "log").open("w") as log:
        child = subprocess.Popen(
            [*ENDS_WITH_US, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            silent = _awaited(child, directory, stop, patience_s)
        finally:
            if child.poll() is None:
                child.kill() if silent else child.terminate()
            child.wait()
    if silent:
        return command, _SilentError(
            f"`bentpipe sim` did not end: nothing came of it for {patience_s:.0f} s, and it was ended; it had said:"
            f" {(directory / 'log').read_text()[-200:].strip() or 'nothing'}"
        )
    if child.returncode != 0 and not stop.is_set():
        said = (directory / "log").read_text()[-2000:]
        if lacks_room(said) or is_full(directory):
            raise DiskFullError(f"no room in {directory.parent} for what `bentpipe sim` writes: {said}")
        before, _, last = said.strip().rpartition("\n")
        problem = ProgramError(f"bentpipe sim ended with {child.returncode}: {last}\n{before}".rstrip())
        if child.returncode != SOME_BROKE:
            raise problem  # its last run may not be whole
        return command, problem
    return command, None


def _awaited(child: "subprocess.Popen[bytes]", directory: Path, stop: threading.Event, patience_s: float) -> bool:
    """Wait for the simulator's end, or for somebody to ask to stop; whether nothing came of it for too long."""
    seen, since, looked = -1, time.monotonic(), 0.0
    while child.poll() is None and not stop.wait(POLL_S):
        now = time.monotonic()
        if now - looked < min(LOOK_S, patience_s / 4):
            continue
        looked = now
        written = sum(path.stat().st_size for path in (directory / RECORDS, directory / "log") if path.exists())
        if written != seen:
            seen, since = written, now
        elif now - since > patience_s:
            return True
    return False


def _keep(unit: Unit, run: Run, simulated: simulation.SimulatedRun, store: Store, used: dict[str, Any]) -> None:
    essence = unit.points[run.point]
    outcome = simulation.outcome(simulated, essence["until"], parts.switches_s(essence["simulation"]["link"]))
    records = "".join(simulated.lines)
    result = {
        "schema": RESULT_SCHEMA,
        "point": run.point,
        "repetition": run.repetition,
        "attempt": run.attempt,
        "verdict": outcome.verdict,
        "detail": outcome.detail,
        "seconds": outcome.seconds,
        "bytes_received": outcome.bytes_received,
        "metrics": outcome.metrics,
        "bound_s": essence["bound_s"],
        "records_sha256": hashlib.sha256(records.encode()).hexdigest(),
    }
    samples = simulation.samples(simulated)
    files = {
        RESULT: json.dumps(result, indent=1) + "\n",
        RECORDS: records,
        SAMPLES: samples,
        PROVENANCE: json.dumps({**used, "seed": run.repetition, "plan": essence["simulation"]}) + "\n",
    }
    store.put(run, files)
