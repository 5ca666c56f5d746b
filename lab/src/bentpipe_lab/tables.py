"""The demo's results as tables in the terminal."""

from collections.abc import Sequence

from rich.table import Table

from bentpipe_lab.budgets import Finding
from bentpipe_lab.stats import Row

VERDICT_STYLE = {"within": "green", "missed": "bold red"}


def results(title: str, rows: Sequence[Row]) -> Table:
    """One scenario: a line per workload, direct beside bentpipe beside the physical bound."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("workload")
    table.add_column("bound", justify="right")
    systems = list(dict.fromkeys(row.system for row in rows))
    for system in systems:
        table.add_column(f"{system}\nmedian", justify="right")
        table.add_column("n of N\n", justify="right")
        table.add_column("x bound\n", justify="right")
    table.add_column("bentpipe\n/ direct", justify="right")
    by_key = {(row.workload, row.system): row for row in rows}
    for workload in dict.fromkeys(row.workload for row in rows):
        mine = [by_key.get((workload, system)) for system in systems]
        bound = next(row.bound_s for row in mine if row is not None)
        cells = [cell for row in mine for cell in _cells(row)]
        table.add_row(workload, seconds(bound), *cells, times(_ratio(by_key, workload)))
    return table


def limits(findings: Sequence[Finding]) -> Table:
    """What bentpipe has to reach, what it reached, and whether that is within the limit."""
    table = Table(title="limits", title_justify="left", title_style="bold")
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


def times(ratio: float | None) -> str:
    """A ratio for a person."""
    return "-" if ratio is None else f"{ratio:.2f} x"


def _cells(row: Row | None) -> tuple[str, str, str]:
    if row is None:
        return ("-", "-", "-")
    doubt = "" if row.certificate_valid else " [yellow](invalid)[/]"
    return (seconds(row.median_s) + doubt, f"{row.n_ok} of {row.n_total}", times(row.ratio_to_bound))


def _ratio(rows: dict[tuple[str, str], Row], workload: str) -> float | None:
    ours, direct = rows.get((workload, "bentpipe")), rows.get((workload, "direct"))
    if ours is None or direct is None or ours.median_s is None or direct.median_s is None:
        return None
    return ours.median_s / direct.median_s
