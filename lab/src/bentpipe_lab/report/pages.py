"""Distributions of load times over all pages of a plan, as Pavur et al. draw them."""

from collections.abc import Sequence

from bentpipe_lab.analysis import statistics
from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.report.charts import MOST_PANELS, MOST_VARIANTS, Chart, Count, Looks, entitle, finish, grid, together
from bentpipe_lab.report.style import svg as drawing

PAGE = "workload.page"
LEAST_PAGES = 3
"""Fewer are told apart better by a figure of medians."""


def page_loads(rows: Sequence[PointRow]) -> list[Chart]:
    """One figure, a panel for what is the same of all pages; none where a plan has few pages."""
    pages = {row.axes[PAGE] for row in rows if PAGE in row.axes}
    if len(pages) < LEAST_PAGES:
        return []
    panels: dict[str, dict[str, list[PointRow]]] = {}
    for row in rows:
        if PAGE in row.axes:
            same = [row.clock, *(value for name, value in row.setting.items() if name != PAGE)]
            panels.setdefault(", ".join(same), {}).setdefault(row.variant, []).append(row)
    some = [(title, by) for title, by in panels.items() if len(by) <= MOST_VARIANTS][:MOST_PANELS]
    if not some:
        return []
    looks = Looks(row.variant for row in rows)
    figure, cells = grid(len(some))
    table: list[dict[str, object]] = []
    for axes, (title, by) in zip(cells, some, strict=False):
        counts = {variant: _loads(group) for variant, group in by.items()}
        for variant, group in by.items():
            times = [time for row in group for time in row.times]
            found = statistics.distribution(times, [limit for row in group for limit in row.censored])
            if not found.times:
                continue
            axes.plot(
                [found.times[0], *found.times], [0, *found.shares], drawstyle="steps-post", label=variant,
                linewidth=1.5, **looks.of(variant),
            )  # fmt: skip
            table += [
                {"panel": title, "variant": variant, **counts[variant].fields, "seconds": time, "share": share}
                for time, share in zip(found.times, found.shares, strict=True)
            ]
        entitle(axes, title, together(counts.values(), "loads"))
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("seconds")
        axes.grid(visible=True)
    finish(figure, cells, "share of page loads")
    return [
        Chart(
            "page-loads", drawing(figure),
            f"Share of page loads that were done by a time, over {len(pages)} pages together. Loads that did not end"
            " well are counted as not done until their limit.",
            f"Distributions of load times of {len(pages)} pages in {len(some)} panels", table,
        )
    ]  # fmt: skip


def _loads(rows: Sequence[PointRow]) -> Count:
    """Of all pages together."""
    return Count(sum(row.n_ok for row in rows), sum(row.n_total for row in rows))
