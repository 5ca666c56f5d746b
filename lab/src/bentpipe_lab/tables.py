"""The demo's results as tables in the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from bentpipe_lab.budgets import BudgetVerdict, Finding
from bentpipe_lab.link import Link
from bentpipe_lab.stats import Row
from bentpipe_lab.system import SYSTEMS

VERDICT_STYLE = {BudgetVerdict.WITHIN: "green", BudgetVerdict.MISSED: "bold red"}


def results(link: Link, rows: Sequence[Row]) -> Table:
    """One scenario: a line per workload, direct beside bentpipe, each beside the physical bound."""
    table = _table(
        f"{link.name.upper()}: median (runs that ended well / all runs), and its ratio to the physical bound"
    )
    table.add_column("\nworkload")
    table.add_column("\nbound", justify="right")
    for system in SYSTEMS:
        table.add_column(f"\n{system}", justify="right")
        table.add_column("x\nbound", justify="right")
    table.add_column("bentpipe\n/ direct", justify="right")
    by_key = {(row.workload, row.system): row for row in rows}
    for workload in dict.fromkeys(row.workload for row in rows):
        mine = [by_key.get((workload, system)) for system in SYSTEMS]
        bound = next(row.bound_s for row in mine if row is not None)
        cells = [cell for row in mine for cell in _cells(row)]
        table.add_row(workload, seconds(bound), *cells, _ratio_text(_ratio(by_key, workload)))
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
            budget.scenario, budget.workload, times(finding.ratio), times(budget.limit), budget.against,
            f"[{style}]{finding.verdict}[/]",
        )  # fmt: skip
    return table


def seconds(value: float | None) -> str:
    """A time for a person: three digits that matter."""
    if value is None:
        return "-"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def times(ratio: float | None, digits: int = 2) -> str:
    """A ratio for a person."""
    return "-" if ratio is None else f"{ratio:.{digits}f} x"


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return ("-", "-")
    return (f"{seconds(row.median_s)} ({row.n_ok}/{row.n_total})", _ratio_text(row.ratio_to_bound))


def _ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _ratio(rows: dict[tuple[str, str], Row], workload: str) -> float | None:
    ours, direct = rows.get((workload, "bentpipe")), rows.get((workload, "direct"))
    if ours is None or direct is None or ours.median_s is None or direct.median_s is None:
        return None
    return ours.median_s / direct.median_s


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
