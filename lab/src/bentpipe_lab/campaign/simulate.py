"""Execution of a unit in virtual time: its points as one plan of `bentpipe sim`, its runs kept one by one."""

import hashlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from bentpipe_lab import scratch
from bentpipe_lab.campaign import provenance
from bentpipe_lab.campaign.provenance import Watch
from bentpipe_lab.campaign.store import PROVENANCE, RECORDS, RESULT, RESULT_SCHEMA, SAMPLES, Store
from bentpipe_lab.campaign.unit import Run, Unit
from bentpipe_lab.errors import DiskFullError, ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.net.process import ENDS_WITH_US
from bentpipe_lab.records import parts, simulation
from bentpipe_lab.room import is_full, lacks_room

POLL_S = 0.05
SILENT_S = 1800.0
"""Runs take seconds of processor time, rarely minutes: a simulator that has told of none for so long does not end."""
SOME_BROKE = 1
"""The simulator's exit code when it has done all runs, but for some that broke it; of other errors, too."""


def execute(unit: Unit, store: Store, stop: threading.Event) -> list[dict[str, Any]]:
    """Do the runs that the store does not have yet; the results of all that are done, in the unit's order."""
    open_runs = [run for run in unit.runs if not store.has(run)]
    if open_runs:
        _simulate(unit, open_runs, store, stop)
    return [store.result(run) for run in unit.runs if store.has(run)]


def check(unit: Unit) -> None:
    """Have the simulator read the unit's points, for next to no simulated time; raise with what it says."""
    cases = {point: {**essence["simulation"], "until": "1 ms"} for point, essence in unit.points.items()}
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        _, problem = _run(_plan(cases, 1), Path(directory), threading.Event())
        if problem is not None:
            raise problem


def _simulate(unit: Unit, open_runs: list[Run], store: Store, stop: threading.Event) -> None:
    wanted = {(run.point, run.repetition): run for run in open_runs}
    cases = {point: unit.points[point]["simulation"] for point in dict.fromkeys(run.point for run in open_runs)}
    plan = _plan(cases, max(run.repetition for run in open_runs))
    with scratch.directory() as directory:
        watch = Watch()
        command, problem = _run(plan, directory, stop)
        if stop.is_set():
            return  # its last run may not be whole
        used = provenance.of_run(watch, command)
        if problem is not None and not wanted.keys() <= _there(directory / RECORDS):
            raise problem
        for simulated in simulation.runs(directory / RECORDS):
            run = wanted.get((simulated.case, simulated.seed))
            if run is not None:
                _keep(unit, run, simulated, store, used)


def _there(records: Path) -> set[tuple[str, int]]:
    """The runs that the simulator wrote of, those that broke it included."""
    return {(each.case, each.seed) for each in simulation.runs(records)} if records.exists() else set()


def _plan(cases: Mapping[str, Mapping[str, Any]], seeds: int) -> str:
    """Every point is a case that has everything of its own."""
    return tomli_w.dumps(
        {"name": "campaign", "seeds": seeds, "case": [{"name": point, **plan} for point, plan in cases.items()]}
    )


def _run(plan: str, directory: Path, stop: threading.Event) -> tuple[list[str], ProgramError | None]:
    """Run the simulator to its end, or until somebody asks to stop; its command line, and what it broke at."""
    file = directory / "plan.toml"
    file.write_text(plan)
    command = [str(host.binary()), "sim", str(file), "--out", str(directory)]
    with (directory / "log").open("w") as log:
        child = subprocess.Popen(
            [*ENDS_WITH_US, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
        told, since = _told(directory), time.monotonic()
        try:
            while child.poll() is None:
                if stop.wait(POLL_S):
                    break
                if (now_told := _told(directory)) != told:
                    told, since = now_told, time.monotonic()
                elif time.monotonic() - since > SILENT_S:
                    raise ProgramError(f"bentpipe sim told of no run for {SILENT_S:.0f} s, and was ended")
        finally:
            if child.poll() is None:
                child.terminate()
            child.wait()
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


def _told(directory: Path) -> tuple[int, int]:
    """How much a simulator has written until now: records, and progress."""
    records = directory / RECORDS
    return (records.stat().st_size if records.exists() else 0, (directory / "log").stat().st_size)


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
