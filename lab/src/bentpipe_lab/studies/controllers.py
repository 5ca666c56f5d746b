"""The tunnel's congestion controllers beside each other, in real time: the demo's workloads over three links."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bentpipe_lab.analysis.stats import Row
from bentpipe_lab.campaign.parallel import run_tasks
from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.net import host
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.report import tables
from bentpipe_lab.studies import demo
from bentpipe_lab.systems.contract import Settings
from bentpipe_lab.systems.tunnel import Tunnel

CONTROLLERS = ("satellite", "cubic", "bbr3", "bbr3-library")

COUNTS: Mapping[str, dict[str, int]] = {
    "geo": {"download 2 MB": 3, "page HTTP/2": 3, "download 10 MiB": 3},
    "leo": {"download 2 MB": 5, "page HTTP/2": 5, "download 10 MiB": 5},
    "kosek-geo-loss-0.1": {"download 2 MB": 4},
}


def compare(out: Path, controllers: Sequence[str], console: Console) -> int:
    """Measure every controller over every link and print a table for each link; 0 when all came to their end."""
    host.require()
    host.clean_leftovers()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    tasks = [
        Task(
            demo.scenario(name),
            Tunnel.name,
            counts,
            out / "runs" / f"{name}-{controller}",
            settings=Settings(controller=controller),
        )
        for name, counts in COUNTS.items()
        for controller in controllers
    ]
    with host.allowed_congestion_control(CONTROLLER):
        problems = run_tasks(tasks, demo.SIDE_BY_SIDE, console)
    rows = demo.summarise(tasks, {name: Link.from_explanation(explain(demo.scenario(name))) for name in COUNTS})
    (out / "summary.json").write_text(json.dumps([row.as_record() for row in rows], indent=2) + "\n")
    for name in COUNTS:
        console.print(_table(name, [row for row in rows if row.scenario == name]))
    for problem in problems:
        console.print(f"[bold red]not complete:[/] {escape(problem)}", highlight=False)
    return 1 if problems else 0


def _table(name: str, rows: Sequence[Row]) -> Table:
    """A line per workload, a column per controller."""
    table = Table(
        title=f"{name}: median (ended well / all), x bound; ! where no run was punctual", title_justify="left"
    )
    systems = list(dict.fromkeys(row.system for row in rows))
    table.add_column("workload")
    table.add_column("bound", justify="right")
    for system in systems:
        table.add_column(system.removeprefix(f"{Tunnel.name} "), justify="right")
    found = {(row.workload, row.system): row for row in rows}
    for workload in dict.fromkeys(row.workload for row in rows):
        cells = [_cell(found.get((workload, system))) for system in systems]
        bound = next(row.bound_s for row in rows if row.workload == workload)
        table.add_row(workload, tables.seconds(bound), *cells)
    return table


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    late = "" if row.certificate_valid else " !"
    return f"{tables.seconds(row.median_s)} ({row.n_ok}/{row.n_total}), {tables.times(row.ratio_to_bound)}{late}"
