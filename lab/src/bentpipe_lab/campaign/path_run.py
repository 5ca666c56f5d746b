"""One system over one scenario: build the path, warm up, measure round by round, each under a certificate.

A program of its own (`python -m bentpipe_lab.campaign.path_run`), so that two paths can be measured side by side and
each cleans up after itself. It keeps `records.jsonl`, `certificate.json`, the resolved scenario and every log in
its directory, and prints one JSON line per step for whoever shows the progress.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import interrupt
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.net.topology import Certificate, Topology, topology
from bentpipe_lab.records.sample import Outcome, Sample
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.programs import curl

RECORDS = "records.jsonl"
REPEATS_S = 30.0
"""How long a path may go on repeating runs in which the machine could not keep the link's time."""


@dataclass(frozen=True)
class Task:
    """What to measure: how many runs of each workload."""

    scenario: Path
    system: str
    counts: dict[str, int]
    directory: Path
    congestion_control: str = CONTROLLER
    """The kernel's, for TCP."""
    settings: Settings = field(default_factory=Settings)
    """Of the system; what is not set is the product's default."""

    @property
    def measured(self) -> str:
        """The system, with its settings where some were chosen."""
        return f"{self.system} {self.settings.suffix}".rstrip()

    @property
    def name(self) -> str:
        """Short and unique within a plan."""
        return "-".join(filter(None, (self.scenario.stem, self.system, self.settings.suffix.replace(" ", "-"))))

    def rounds(self) -> list[tuple[str, int]]:
        """(workload, index) in the order of measurement: workloads take turns, so that drift hits all alike."""
        turns = range(max(self.counts.values()))
        return [(workload, turn) for turn in turns for workload, count in self.counts.items() if turn < count]

    def command(self) -> list[str]:
        """The command line which carries it out."""
        return [
            sys.executable, "-m", "bentpipe_lab.campaign.path_run", "--scenario", str(self.scenario),
            "--system", self.system, "--counts", json.dumps(self.counts), "--directory", str(self.directory),
            "--congestion-control", self.congestion_control,
            "--settings", json.dumps(asdict(self.settings)),
        ]  # fmt: skip


def execute(task: Task) -> Certificate | None:
    """Carry a task out; its records are complete on disk when this returns."""
    task.directory.mkdir(parents=True, exist_ok=True)
    tell("building the path")
    with (
        topology(task.directory, task.scenario, congestion_control=task.congestion_control) as path,
        (task.directory / RECORDS).open("w") as records,
    ):
        system = SYSTEMS[task.system]
        system.start(path, task.settings)
        system.show_in_path(path)
        if system.warms_up:
            tell("warming up")
            for outcome in curl.warm_up(path):
                tell("warming up", verdict=outcome.verdict, detail=outcome.detail)
        allowance = REPEATS_S
        for workload, index in task.rounds():
            while True:
                tell("measuring", workload=workload, index=index)
                begin = time.monotonic()
                sample = Sample(task.scenario.stem, task.measured, workload, index, _measure(path, workload))
                took = time.monotonic() - begin
                records.write(sample.to_json() + "\n")
                records.flush()
                if sample.outcome.verdict is not Verdict.EMULATOR_LATE or took > allowance:
                    break
                allowance -= took
            tell("measured", workload=workload, verdict=sample.outcome.verdict, detail=sample.outcome.detail)
        tell("cleaning up")
        system.stop(path)
        return path.end_emulation()


def tell(step: str, **fields: Any) -> None:
    """Print one line of progress."""
    print(json.dumps({"step": step, **fields}), flush=True)


def _measure(path: Topology, workload: str) -> Outcome:
    """Measure once, under a certificate for just that time."""
    path.certify_interval()
    outcome = WORKLOADS[workload].run(path)
    certificate = path.certify_interval()
    if certificate is None or certificate.valid:
        return outcome
    if outcome.verdict is not Verdict.OK:
        return outcome
    return replace(outcome, verdict=Verdict.EMULATOR_LATE, detail="; ".join(certificate.reasons))


def main() -> int:
    """Parse the command line and carry the task out."""
    parser = argparse.ArgumentParser(description="Measure one system over one scenario.")
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--system", choices=SYSTEMS.names(), required=True)
    parser.add_argument("--counts", type=json.loads, required=True, help="JSON: runs by workload")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--congestion-control", default=CONTROLLER)
    parser.add_argument("--settings", type=lambda text: Settings(**json.loads(text)), default=Settings(), help="JSON")
    arguments = parser.parse_args()
    try:
        with interrupt.as_exception():
            execute(Task(**vars(arguments)))
    except LabError as error:
        tell("failed", detail=str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
