"""Execution of a unit in real time: one path with its system, and its runs one after the other over it.

`python -m bentpipe_lab.campaign.emulate` is a program of its own, so that paths can be measured side by side and each
cleans up after itself, however its owner ends. It reads a unit as one line of JSON from standard input, which stays
open for as long as its owner lives, and prints a JSON line for each run that is done; `execute` starts it and keeps
what it prints.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from bentpipe_lab import scratch
from bentpipe_lab.campaign import provenance
from bentpipe_lab.campaign.provenance import Watch
from bentpipe_lab.campaign.store import PROVENANCE, RESULT, RESULT_SCHEMA, SAMPLES, Store
from bentpipe_lab.campaign.unit import Run, Unit
from bentpipe_lab.errors import DiskFullError, LabError, MissingCapabilityError, NotInPathError, ProgramError
from bentpipe_lab.net import host, interrupt, neighbours, processors
from bentpipe_lab.net.evidence import Crossed, SatelliteCounters
from bentpipe_lab.net.tcp import KernelTcp
from bentpipe_lab.net.topology import Certificate, Topology, topology
from bentpipe_lab.records import parts
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Workload
from bentpipe_lab.workloads.programs import curl
from bentpipe_lab.workloads.quic_download import QuicDownload

POLL_S = 0.2
LOG_TAIL = 4000
MOST_WRITTEN = 64 << 20
"""Bytes that a program of the system may write to one file: one that floods its log is ended, not the disk."""
BESIDE_S = 300.0
"""What a path's program may take beside building the path, or a run: it starts, cleans up, removes the path."""
KILL_S = 60.0
"""A path's program that tells nothing is asked to end, and killed when it has not so much later."""
DOING = "doing.json"
"""What a path's program is at, in its directory."""
MOST_OF_A_LOG = 64 << 10
"""Bytes of a program's log that are kept."""


class _SilentError(ProgramError):
    """A path's program told nothing for longer than anything it does may take."""

    def __init__(self, message: str, run: tuple[str, int] | None) -> None:
        super().__init__(message)
        self.run = run
        """The point and the repetition that it was at; None where it was at none."""


def execute(unit: Unit, store: Store, stop: threading.Event) -> list[dict[str, Any]]:
    """Do the runs that the store does not have yet; the results of all that are done, late ones included."""
    open_runs = [run for run in unit.runs if not store.has(run)]
    results = [store.result(run) for run in unit.runs if store.has(run)]
    while open_runs:
        try:
            _over_a_path(replace(unit, runs=open_runs), store, stop, results)
            break
        except _SilentError as error:
            if error.run is None:
                # Without a path there are no runs.
                results += [_failed(unit, run, str(error), store) for run in open_runs]
                break
            # The runs behind the one that was in flight have another path.
            place = [(run.point, run.repetition) for run in open_runs].index(error.run)
            results.append(_failed(unit, open_runs[place], str(error), store))
            open_runs = open_runs[place + 1 :]
    return results


def _over_a_path(unit: Unit, store: Store, stop: threading.Event, results: list[dict[str, Any]]) -> None:
    """Do runs over one path that is built for them; their results are appended."""
    with scratch.directory() as directory:
        for line in _lines(unit, directory, stop):
            run = Run(line["result"]["point"], line["result"]["repetition"], line["result"]["attempt"])
            if not store.has(run):
                files = {
                    RESULT: json.dumps(line["result"], indent=1) + "\n",
                    SAMPLES: "".join(f"{json.dumps(sample)}\n" for sample in line["samples"]),
                    PROVENANCE: json.dumps(line["provenance"], indent=1) + "\n",
                    "scenario.toml": unit.points[run.point]["scenario"],
                    "objects.json": json.dumps(line["objects"]) + "\n",
                }
                kept = {name: Path(place).read_bytes() for name, place in line["files"].items()}
                store.put(run, {**kept, **{name: text for name, text in files.items() if text}})
            results.append(line["result"])
        _keep_logs(unit, directory, store)


def _failed(unit: Unit, run: Run, detail: str, store: Store) -> dict[str, Any]:
    """The result of a run of which its path's program told nothing; late attempts of it are there."""
    while store.has(run):
        run = replace(run, attempt=run.attempt + 1)
    result = _result(unit, run, Outcome(Verdict.FAILED, detail=detail))
    store.put(run, {RESULT: json.dumps(result, indent=1) + "\n"})
    return result


def _keep_logs(unit: Unit, directory: Path, store: Store) -> None:
    """The end of every program's log, and the emulator's certificate of the whole time."""
    for path in sorted([*directory.rglob("*.log"), *directory.rglob("certificate.json")]):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - MOST_OF_A_LOG, 0))
            store.keep(f"paths/{unit.name}/{path.name}", file.read().decode(errors="replace"))


def _lines(unit: Unit, directory: Path, stop: threading.Event) -> Iterator[dict[str, Any]]:
    """What the program prints, line by line; it is ended in order when somebody asks to stop."""
    patience_s = unit.patience_s + max(each["limit_s"] for each in unit.points.values()) + BESIDE_S
    silent = False
    # The engine's own threads may keep to fewer.
    task = json.dumps({**asdict(unit), "directory": str(directory), "processors": sorted(processors.ALLOWED)})
    with (directory / "emulate.log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "bentpipe_lab.campaign.emulate"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            env={**os.environ, "TMPDIR": str(directory)},
        )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(f"{task}\n".encode())
        child.stdin.flush()
        held, heard = b"", time.monotonic()
        while not stop.is_set():
            readable, _, _ = select.select([child.stdout], [], [], POLL_S)
            if not readable:
                silent = time.monotonic() - heard > patience_s
                if silent:
                    break
                continue
            heard = time.monotonic()
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            *whole, held = (held + chunk).split(b"\n")
            yield from map(json.loads, whole)
    finally:
        child.stdout.close()
        if stop.is_set():
            interrupt.end(child)
        elif silent:
            interrupt.end_or_kill(child, KILL_S)
        child.wait()
        child.stdin.close()
        if child.returncode != 0:
            host.clean_leftovers()  # of one that was killed
    if silent:
        doing, run = _done_last(directory)
        raise _SilentError(f"{doing}: nothing more came of it for {patience_s:.0f} s, and the path was removed", run)
    if child.returncode != 0 and not stop.is_set():
        said = (directory / "emulate.log").read_text()[-LOG_TAIL:]
        raise ProgramError(f"the path of {unit.name} ended with {child.returncode}: {said or 'it said nothing'}")


def main() -> int:
    """Read a unit, do its runs, print what came of them."""
    task = json.loads(sys.stdin.readline())
    directory, allowed = Path(task.pop("directory")), frozenset(task.pop("processors"))
    unit = Unit(**{**task, "runs": [Run(**run) for run in task["runs"]]})
    try:
        with scratch.used(directory), interrupt.as_exception():
            interrupt.when_closed(sys.stdin.fileno())
            measure_all(unit, directory, allowed)
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


@dataclass(frozen=True)
class Place:
    """A path that stands, and what is done over it."""

    path: Topology
    run: Callable[[Workload], Outcome]
    counters: SatelliteCounters | None
    """None where the satellite hop is not on this machine."""
    evidence: Callable[[], Mapping[str, Any]]
    """That the system is in the path, or where the path is."""


def measure_all(unit: Unit, directory: Path, allowed: Iterable[int] = processors.ALLOWED) -> None:
    """Build the path, do the runs, print a line for each; what keeps the path from being built is their verdict."""
    essence = next(iter(unit.points.values()))
    scenario = directory / "scenario.toml"
    scenario.write_text(essence["scenario"])
    done: set[tuple[str, int]] = set()
    try:
        with ExitStack() as stack:
            processor = stack.enter_context(processors.kept_from_emulators(allowed, alone=unit.alone))
            path = (
                _elsewhere(unit, directory, scenario)
                if unit.hosts is not None
                else _here(unit, directory, scenario, processor)
            )
            place = stack.enter_context(_in_time(path, directory, unit.patience_s))
            for run in unit.runs:
                _at(directory, f"measuring {unit.points[run.point]['workload']}", run)
                _measure(unit, run, place)
                done.add((run.point, run.repetition))
            _at(directory, "removing the path")
    except LabError as error:
        verdict = {MissingCapabilityError: Verdict.PROGRAM_MISSING, NotInPathError: Verdict.NOT_IN_PATH}.get(
            type(error), Verdict.FAILED
        )
        for run in unit.runs:
            if (run.point, run.repetition) not in done:
                _print(unit, run, Outcome(verdict, detail=str(error)), None, {}, Watch())


@contextmanager
def _in_time(path: AbstractContextManager[Place], directory: Path, limit_s: float) -> Iterator[Place]:
    """A path that is built within a time, and lasts as long as it likes then."""
    with ExitStack() as stack:
        _at(directory, "building the path")
        try:
            with _limited(limit_s):
                place = stack.enter_context(path)
        except _LimitError:
            doing, _ = _done_last(directory)
            raise ProgramError(
                f"{doing} was not done after {limit_s:.0f} s; there is no path to measure over"
            ) from None
        yield place


def _at(directory: Path, doing: str, run: Run | None = None) -> None:
    """Say what this program is at, for when it comes to no end."""
    at = {"doing": doing, "run": None if run is None else [run.point, run.repetition]}
    (directory / DOING).write_text(json.dumps(at))


def _done_last(directory: Path) -> tuple[str, tuple[str, int] | None]:
    """What a path's program said last that it is at, and which run that is of."""
    try:
        at = json.loads((directory / DOING).read_text())
    except (OSError, ValueError):
        return "the path's program", None
    return at["doing"], None if at["run"] is None else (at["run"][0], at["run"][1])


@contextmanager
def _here(unit: Unit, directory: Path, scenario: Path, processor: int | None) -> Iterator[Place]:
    """A path of namespaces with its system."""
    essence = next(iter(unit.points.values()))
    system = SYSTEMS[essence["system"]]
    system.require()
    begun = time.monotonic()
    tcp = KernelTcp.of(essence["tcp"])
    records = any(WORKLOADS[each["workload"]].reads_records for each in unit.points.values())
    with (
        tcp.allowed(),
        topology(
            directory / "path", scenario, congestion_control=tcp.controller(), records=records, processor=processor
        ) as path,
        neighbours.busy(essence["neighbours"]),
    ):
        tcp.apply(path)
        path.most_written = MOST_WRITTEN
        _at(directory, f"starting {system.name}")
        system.start(path, Settings(**essence["settings"]))
        _at(directory, f"seeing {system.name} in the path")
        evidence = system.show_in_path(path)
        if system.warms_up and not essence["cold"]:
            _at(directory, f"warming up {system.name}")
            evidence["warm_up"] = ", ".join(str(outcome.verdict) for outcome in curl.warm_up(path))
        evidence["path_took_s"] = round(time.monotonic() - begun, 3)
        with SatelliteCounters.of(path, system.carrier) as counters:
            yield Place(path, lambda workload: workload.run(path), counters, lambda: evidence)
        system.stop(path)


@contextmanager
def _elsewhere(unit: Unit, directory: Path, scenario: Path) -> Iterator[Place]:
    """A path whose client and server are on other machines; `points` lets nothing but downloads by QUIC come here."""
    from bentpipe_lab.hosts.table import Hosts  # SSH is needed here alone
    from bentpipe_lab.matrix import apart

    assert unit.hosts is not None

    def run(workload: Workload) -> Outcome:
        assert isinstance(workload, QuicDownload)
        return far.run(path, workload.request())

    with apart.path_to(Hosts.of(unit.hosts), directory / "path", scenario) as (path, far):
        yield Place(path, run, None, far.evidence)


def _measure(unit: Unit, run: Run, place: Place) -> None:
    """Run once, and again for as long as the emulator is late and repeats are allowed."""
    essence = unit.points[run.point]
    workload = WORKLOADS[essence["workload"]].with_options(essence["options"])
    attempts = range(run.attempt, run.attempt + unit.late_repeats + 1)
    for attempt in attempts:
        watch = Watch()
        before = None if place.counters is None else place.counters.read()
        place.path.certify_interval()
        outcome = _limited_run(workload, place.run, essence["limit_s"])
        certificate = place.path.certify_interval()
        crossed = None if place.counters is None or before is None else place.counters.read() - before
        if outcome.verdict is Verdict.OK:
            outcome = _doubted(outcome, certificate, SYSTEMS[essence["system"]], crossed)
            outcome.metrics.update(_of_parts(outcome, workload, essence["scenario"]))
        seen = {**place.evidence(), **({} if crossed is None else {"crossed": crossed.as_record()})}
        _print(unit, replace(run, attempt=attempt), outcome, certificate, seen, watch)
        if outcome.verdict is not Verdict.EMULATOR_LATE:
            return


def _of_parts(outcome: Outcome, workload: Workload, scenario: str) -> Mapping[str, float]:
    """Figures of the parts of a run."""
    if workload.runs_for_s is not None:
        return parts.of_fixed_length(outcome.samples, parts.switches_s(tomllib.loads(scenario)))
    if outcome.verdict is not Verdict.OK or outcome.seconds is None:
        return {}
    return parts.amounts(_samples(outcome), outcome.bytes_received, outcome.seconds)


def _samples(outcome: Outcome) -> Sequence[Mapping[str, Any]]:
    return outcome.samples or [{"at_s": at, "received_bytes": count} for at, count in outcome.curve]


def _doubted(outcome: Outcome, certificate: Certificate | None, system: System, crossed: Crossed | None) -> Outcome:
    """A run that ended well, unless the emulator was late or most of its bytes went around the system."""
    if system.carrier is not None and crossed is not None and crossed.beside_bytes > crossed.carried_bytes:
        return replace(
            outcome, verdict=Verdict.NOT_IN_PATH, seconds=None,
            detail=f"{crossed.beside_bytes} bytes of the client's own beside {system.name}, of which there are"
            f" {crossed.carried_bytes}, {system.carrier}",
        )  # fmt: skip
    if certificate is not None and not certificate.valid:
        return replace(outcome, verdict=Verdict.EMULATOR_LATE, detail="; ".join(certificate.reasons))
    return outcome


def _limited_run(workload: Workload, run: Callable[[Workload], Outcome], limit_s: float) -> Outcome:
    """One run of a workload, ended when it takes too long; without a program that it needs it has not begun."""
    try:
        workload.require()
    except MissingCapabilityError as error:
        return Outcome(Verdict.PROGRAM_MISSING, detail=str(error))
    with _limited(limit_s) as limit:
        return limit.outcome(lambda: run(workload))


class _LimitError(Exception):
    """A run has taken as long as it may."""


class _Limit:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def outcome(self, run: Any) -> Outcome:
        """What came of a run; that it took too long, or what broke it."""
        try:
            outcome: Outcome = run()
        except _LimitError:
            return Outcome(Verdict.TIMED_OUT, detail=f"not done after {self.seconds:.1f} s, the plan's limit")
        except DiskFullError:
            raise
        except Exception as error:
            # One run's failure, whatever its program did; the path stands, and the next run has it.
            said = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            return Outcome(Verdict.FAILED, detail=said)
        return outcome


@contextmanager
def _limited(seconds: float) -> Iterator[_Limit]:
    """An alarm that ends a run; programs that it waits for are ended with it."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _LimitError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield _Limit(seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _result(unit: Unit, run: Run, outcome: Outcome) -> dict[str, Any]:
    return {
        "schema": RESULT_SCHEMA,
        "point": run.point,
        "repetition": run.repetition,
        "attempt": run.attempt,
        "verdict": outcome.verdict,
        "detail": outcome.detail,
        "seconds": outcome.seconds,
        "bytes_received": outcome.bytes_received,
        "metrics": outcome.metrics,
        "bound_s": unit.points[run.point]["bound_s"],
    }


def _print(
    unit: Unit, run: Run, outcome: Outcome, certificate: Certificate | None, evidence: Mapping[str, Any], watch: Watch,
) -> None:  # fmt: skip
    lateness = None if certificate is None else certificate.fields.get("links")
    line = {
        "result": _result(unit, run, outcome),
        "samples": _samples(outcome),
        "objects": outcome.objects,
        "files": outcome.files,
        "provenance": provenance.of_run(
            watch, [sys.executable, "-m", "bentpipe_lab.campaign.emulate"],
            evidence=evidence, lateness=lateness, settings=unit.points[run.point]["settings"],
            tcp=unit.points[run.point]["tcp"], options=unit.points[run.point]["options"],
            neighbours=unit.points[run.point]["neighbours"],
        ),
    }  # fmt: skip
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
