"""The demo's results as tables in the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from bentpipe_lab.analysis.budgets import BudgetVerdict, Finding
from bentpipe_lab.analysis.stats import Row
from bentpipe_lab.net.link import Link
from bentpipe_lab.systems import SYSTEMS, baseline, system_of

VERDICT_STYLE = {BudgetVerdict.WITHIN: "green", BudgetVerdict.MISSED: "bold red"}


def results(link: Link, rows: Sequence[Row]) -> Table:
    """One scenario: a line per workload, a column per system, each beside the physical bound."""
    table = _table(
        f"{link.name.upper()}: median (runs that ended well / all runs), and its ratio to the physical bound"
    )
    table.add_column("\nworkload")
    table.add_column("\nbound", justify="right")
    systems = shown(rows)
    for system in systems:
        table.add_column(f"\n{system}", justify="right")
        table.add_column("x\nbound", justify="right")
    base = baseline().name
    others = [system for system in systems if system != base] if base in systems else []
    for system in others:
        table.add_column(f"{system}\n/ {base}", justify="right")
    by_key = {(row.workload, row.system): row for row in rows}
    for workload in dict.fromkeys(row.workload for row in rows):
        mine = [by_key.get((workload, system)) for system in systems]
        bound = next(row.bound_s for row in mine if row is not None)
        cells = [cell for row in mine for cell in _cells(row)]
        ratios = [_ratio_text(ratio(by_key.get((workload, other)), by_key.get((workload, base)))) for other in others]
        table.add_row(workload, seconds(bound), *cells, *ratios)
    return table


def limits(findings: Sequence[Finding]) -> Table:
    """What bentpipe has to reach, what it reached, and whether that is within the limit."""
    table = _table("Limits")
    for name in ("scenario", "workload"):
        table.add_column(name)
    for name in ("measured", "limit"):
        table.add_column(name, justify="right")
    for name in ("against", "verdict"):
        table.add_column(name)
    for finding in findings:
        budget = finding.budget
        style = VERDICT_STYLE.get(finding.verdict, "yellow")
        table.add_row(
            budget.scenario, budget.workload, times(finding.ratio), times(budget.limit), budget.reference,
            f"[{style}]{finding.verdict}[/]",
        )  # fmt: skip
    return table


def seconds(value: float | None) -> str:
    """A time for a person: three digits that matter."""
    if value is None:
        return "-"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def times(value: float | None, digits: int = 2) -> str:
    """A ratio for a person."""
    return "-" if value is None else f"{value:.{digits}f} x"


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return ("-", "-")
    return (f"{seconds(row.median_s)} ({row.n_ok}/{row.n_total})", _ratio_text(row.ratio_to_bound))


def _ratio_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def ratio(row: Row | None, base: Row | None) -> float | None:
    """One median as a multiple of another, where there are both."""
    if row is None or base is None or row.median_s is None or base.median_s is None:
        return None
    return row.median_s / base.median_s


def shown(rows: Sequence[Row]) -> list[str]:
    """The systems that rows are of, in the registry's order; with settings, in order of appearance."""
    found = dict.fromkeys(row.system for row in rows)
    place = {name: number for number, name in enumerate(SYSTEMS.names())}
    return sorted(found, key=lambda name: place.get(getattr(system_of(name), "name", ""), len(place)))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
