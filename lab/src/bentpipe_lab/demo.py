"""The demo: direct TCP against bentpipe on a GEO and a LEO link, in a few minutes, with a report to look at."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bentpipe_lab import budgets, host, report, sample, stats, tables
from bentpipe_lab.bounds import bound_s
from bentpipe_lab.carry_out import carry_out
from bentpipe_lab.link import Link, explain
from bentpipe_lab.run import CONGESTION_CONTROL, RECORDS, Task
from bentpipe_lab.system import SYSTEMS
from bentpipe_lab.verdict import Verdict

SIDE_BY_SIDE = 2
"""Paths measured at the same time: each needs about half a core."""

Counts = Mapping[str, dict[str, int]]

COUNTS: Counts = {
    "geo": {
        "first byte": 8, "download 2 MB": 4, "page HTTP/2": 4,
        "page HTTP/1.1": 3, "download 10 MiB": 3, "upload 10 MiB": 1,
    },
    "leo": {
        "first byte": 15, "download 2 MB": 7, "page HTTP/2": 5,
        "page HTTP/1.1": 5, "download 10 MiB": 5, "upload 10 MiB": 1,
    },
}  # fmt: skip
"""Runs of each workload by scenario; the links are slow, so this is what four minutes hold."""

QUICK: Counts = {name: dict.fromkeys(counts, 1) for name, counts in COUNTS.items()}
"""One run of each: to try the demo out, not to believe it."""


def demo(out: Path, counts: Counts, console: Console) -> int:
    """Carry the plan out, print the tables, write the report; 0 when the plan came to its end."""
    started = time.monotonic()
    host.require()
    removed = host.clean_leftovers()
    if removed:
        console.print(f"removed what an earlier run left behind: {', '.join(removed)}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    links = {name: Link.from_explanation(explain(scenario(name))) for name in counts}
    tasks = plan(out, counts)
    with host.allowed_congestion_control(CONGESTION_CONTROL) as said:
        if said:
            console.print(said, highlight=False)
        problems = carry_out(tasks, SIDE_BY_SIDE, console)
    rows = summarise(tasks, links)
    findings = budgets.judge(rows)
    (out / "summary.json").write_text(json.dumps([row.told() for row in rows], indent=2) + "\n")
    (out / "budgets.json").write_text(json.dumps([finding.told() for finding in findings], indent=2) + "\n")
    report.write(out / "report.html", report.Material(tasks, links, rows, findings, problems))
    for name in counts:
        console.print(tables.results(links[name], [row for row in rows if row.scenario == name]))
        for doubt in _doubts(rows, name):
            console.print(doubt, highlight=False)
    console.print(tables.limits(findings))
    console.print(f"[bold]{budgets.conclusion(findings)}[/]", highlight=False)
    for problem in problems:
        console.print(f"[bold red]not complete:[/] {escape(problem)}", highlight=False)
    console.print(f"{time.monotonic() - started:.0f} s. Report: {out / 'report.html'}", highlight=False, soft_wrap=True)
    return 1 if problems else 0


def plan(out: Path, counts: Counts) -> list[Task]:
    """Every system over every scenario, in the order in which they keep two slots equally busy."""
    return [
        Task(scenario(name), system, counts[name], out / "runs" / f"{name}-{system}")
        for name, systems in zip(counts, cycle((list(SYSTEMS), list(reversed(SYSTEMS)))), strict=False)
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
                bound = bound_s(workload, links[task.scenario.stem])
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
