"""The demo: direct TCP against bentpipe on a GEO and a LEO link, in a few minutes, with a report to sample at."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bentpipe_lab.analysis import budgets, stats
from bentpipe_lab.campaign.parallel import run_tasks
from bentpipe_lab.campaign.path_run import RECORDS, Task
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.records import sample
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import page as report
from bentpipe_lab.report import tables
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.workloads import WORKLOADS

SIDE_BY_SIDE = 2
"""Paths measured at the same time: each needs about half a core."""
PLAN = "demo.json"
"""How often each workload runs on each scenario; written first, so that the directory is known for a demo's."""

MEASURED = "measured.json"
"""When, with which revision and where it was begun."""

Counts = Mapping[str, dict[str, int]]

SCENARIOS = ("geo", "leo")


def counts_of_runs(*, quick: bool = False) -> Counts:
    """Runs of each workload by scenario, as each workload has it; `quick` is one of each, to try the demo out."""
    return {
        scenario: {
            workload.name: 1 if quick else workload.demo_runs[scenario]
            for workload in WORKLOADS
            if workload.demo_runs.get(scenario)
        }
        for scenario in SCENARIOS
    }


def demo(out: Path, counts: Counts, console: Console) -> int:
    """Carry the plan out, print the tables, write the report; 0 when the plan came to its end."""
    started = time.monotonic()
    clear(out, counts)
    measured = report.now()
    (out / MEASURED).write_text(json.dumps(measured, indent=2) + "\n")
    host.require()
    removed = host.clean_leftovers()
    if removed:
        console.print(f"removed what an earlier run left behind: {', '.join(removed)}")
    links = {name: Link.from_explanation(explain(scenario(name))) for name in counts}
    tasks = plan(out, counts)
    with host.allowed_congestion_control(CONTROLLER) as note:
        if note:
            console.print(note, highlight=False)
        problems = run_tasks(tasks, SIDE_BY_SIDE, console)
    _write(out, tasks, links, problems, measured, console)
    console.print(f"{time.monotonic() - started:.0f} s. Report: {out / 'report.html'}", highlight=False, soft_wrap=True)
    return 1 if problems else 0


def redraw(out: Path, console: Console) -> int:
    """Print the tables and write the report from the records of an earlier demo; nothing is run."""
    try:
        counts = json.loads((out / PLAN).read_text())
    except OSError as error:
        raise LabError(f"{out / PLAN}: {error.strerror}; give the directory of a demo with --out") from error
    links = {name: Link.from_explanation(explain(scenario(name))) for name in counts}
    tasks = [task for task in plan(out, counts) if (task.directory / RECORDS).exists()]
    missing = [task.directory.name for task in plan(out, counts) if task not in tasks]
    _write(out, tasks, links, [f"{name} has no records" for name in missing], _measured(out), console)
    console.print(f"Report: {out / 'report.html'}", highlight=False, soft_wrap=True)
    return 1 if missing else 0


def _measured(out: Path) -> dict[str, str]:
    """What was kept of when and where an earlier demo was begun."""
    try:
        measured: dict[str, str] = json.loads((out / MEASURED).read_text())
    except (OSError, ValueError):
        return dict.fromkeys(report.now(), "not kept")
    return measured


def _write(
    out: Path, tasks: Sequence[Task], links: Mapping[str, Link], problems: Sequence[str], measured: Mapping[str, str],
    console: Console,
) -> None:  # fmt: skip
    """Print the tables, and write them and the report."""
    rows = summarise(tasks, links)
    findings = budgets.judge(rows)
    (out / "summary.json").write_text(json.dumps([row.as_record() for row in rows], indent=2) + "\n")
    (out / "budgets.json").write_text(json.dumps([finding.as_record() for finding in findings], indent=2) + "\n")
    report.write(out / "report.html", report.Material(tasks, links, rows, findings, problems, measured))
    for name in links:
        console.print(tables.results(links[name], [row for row in rows if row.scenario == name]))
        for doubt in _doubts(rows, name):
            console.print(doubt, highlight=False)
    console.print(tables.limits(findings))
    console.print(f"[bold]{budgets.conclusion(findings)}[/]", highlight=False)
    for problem in problems:
        console.print(f"[bold red]not complete:[/] {escape(problem)}", highlight=False)


def clear(out: Path, counts: Counts) -> None:
    """Make the directory, empty but for `PLAN`; an earlier demo's is emptied, anything else is left alone."""
    try:
        if out.is_dir() and any(out.iterdir()) and not (out / PLAN).is_file():
            raise LabError(
                f"{out} has files that are not a demo's (there is no {PLAN}), and the demo would delete them: "
                "give an empty or a new directory with --out"
            )
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / PLAN).write_text(json.dumps(counts, indent=2) + "\n")
    except OSError as error:
        raise LabError(f"{error.filename or out}: {error.strerror}") from error


def plan(out: Path, counts: Counts) -> list[Task]:
    """Every system over every scenario, in the order in which they keep two slots equally busy."""
    systems = [system.name for system in SYSTEMS if "real" in system.clocks and system.in_demo]
    return [
        Task(scenario(name), system, counts[name], out / "runs" / f"{name}-{system}")
        for name, systems in zip(counts, cycle((systems, systems[::-1])), strict=False)
        for system in systems
    ]


def summarise(tasks: Sequence[Task], links: Mapping[str, Link]) -> list[stats.Row]:
    """The rows of everything that was measured."""
    rows = []
    for task in tasks:
        records = task.directory / RECORDS
        samples = sample.read(records) if records.exists() else []
        for workload in task.counts:
            mine = [each for each in samples if each.workload == workload]
            if mine:
                bound = WORKLOADS[workload].bound_s(links[task.scenario.stem])
                rows.append(stats.row(mine, bound))
    return rows


def scenario(name: str) -> Path:
    """The file of a scenario that is shipped."""
    return host.REPOSITORY / "scenarios" / f"{name}.toml"


def _doubts(rows: Sequence[stats.Row], scenario: str) -> list[str]:
    """What a reader must know before believing the table."""
    return [
        f"[yellow]{scenario}, {row.system}, {row.workload}: {Verdict.EMULATOR_LATE} in every run, not to be trusted[/]"
        for row in rows
        if row.scenario == scenario and not row.certificate_valid
    ]
