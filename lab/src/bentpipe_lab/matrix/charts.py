"""The figures of a matrix: distributions, halves by implementation, pairs of cases, results over time."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from scipy import stats

from bentpipe_lab.matrix.table import CLIENT, SERVER, Cell, groups, names
from bentpipe_lab.report.charts import COLOURS, Chart
from bentpipe_lab.report.style import INK, MUTED, svg

MBIT = 1e6
LEAST_OF_A_RELATION = 4


def all_charts(found: Sequence[Cell], runs: pl.DataFrame) -> list[Chart]:
    """Every figure that the runs are enough for."""
    made: list[Chart] = []
    for (case, further), some in groups(found).items():
        if any(cell.goodput_bit_s for cell in some):
            made += [_distribution(case, further, some, side) for side in (SERVER, CLIENT)]
            made.append(_halves(case, further, some))
    made += _relations(found)
    if (over_time := _over_time(runs)) is not None:
        made.append(over_time)
    return made


def _name(*parts: str) -> str:
    words = "-".join(part for part in parts if part)
    return "".join(letter if letter.isalnum() else "-" for letter in words).lower().strip("-")


def _distribution(case: str, further: str, some: Sequence[Cell], side: str) -> Chart:
    """Box and swarm of all runs by one side (figures 5.2 and 5.3 of the thesis)."""
    clients, servers = names(some)
    order = servers if side == SERVER else clients
    values = {
        name: [bits / MBIT for cell in some if getattr(cell, side) == name for bits in cell.goodput_bit_s]
        for name in order
    }
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots()
    shown = [name for name in order if values[name]]
    if shown:
        axes.boxplot(
            [values[name] for name in shown], showfliers=False, widths=0.55,
            medianprops={"color": INK, "linewidth": 2}, boxprops={"color": MUTED}, whiskerprops={"color": MUTED},
            capprops={"color": MUTED},
        )  # fmt: skip
    shift = np.random.default_rng(1)
    for place, name in enumerate(shown, start=1):
        spread = place + shift.uniform(-0.2, 0.2, len(values[name]))
        axes.scatter(spread, values[name], s=14, color=COLOURS[0], alpha=0.55, linewidths=0)
    axes.set_xticks(range(1, len(shown) + 1), shown, rotation=40, ha="right")
    axes.set_ylim(bottom=0)
    axes.set(title=f"{case} {further}".strip(), ylabel="goodput, Mbit/s")
    axes.grid(visible=True, axis="y")
    table = [{side: name, "mbit_s": value} for name in shown for value in values[name]]
    return Chart(
        _name("by", side, case, further), svg(figure),
        f"Goodput of all runs of {case} by {side}; runs that failed are zeros.",
        f"Box plot of goodput by {side}", table,
    )  # fmt: skip


def _halves(case: str, further: str, some: Sequence[Cell]) -> Chart:
    """Each implementation as server, left, and as client, right (figure 5.4 of the thesis)."""
    clients, servers = names(some)
    order = list(dict.fromkeys([*servers, *clients]))
    figure = Figure(figsize=(10, 0.42 * len(order) + 1.2), layout="constrained")
    axes = figure.subplots()
    table: list[dict[str, object]] = []
    for height, name in enumerate(order):
        for side, sign, colour in ((SERVER, -1, COLOURS[0]), (CLIENT, 1, COLOURS[1])):
            values = [bits / MBIT for cell in some if getattr(cell, side) == name for bits in cell.goodput_bit_s]
            if not values:
                continue
            low, median, high = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
            axes.plot([sign * low, sign * high], [height, height], color=colour, linewidth=7, alpha=0.3)
            axes.plot([sign * median], [height], "o", color=colour, markersize=6)
            table.append({"implementation": name, "as": side, "q25": low, "median": median, "q75": high})
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.set(title=f"{case} {further}".strip(), xlabel="as server: Mbit/s          |          as client: Mbit/s")
    axes.grid(visible=True, axis="x")
    return Chart(
        _name("halves", case, further), svg(figure),
        f"{case}: median and quartiles of each implementation as server (left) and as client (right).",
        "Goodput of each implementation as server and as client", table,
    )  # fmt: skip


def _relations(found: Sequence[Cell]) -> list[Chart]:
    """Do the results of one case foretell those of another (figures 5.5 and 5.6 of the thesis)?"""
    by = groups(found)
    keys = list(by)
    made = []
    for place, one in enumerate(keys):
        for other in keys[place + 1 :]:
            medians = [
                {(cell.client, cell.server): cell.median_bit_s for cell in by[key] if cell.median_bit_s is not None}
                for key in (one, other)
            ]
            both = [pair for pair in medians[0] if pair in medians[1]]
            if len(both) < LEAST_OF_A_RELATION:
                continue
            x, y = ([(part[pair] or 0.0) / MBIT for pair in both] for part in medians)
            made.append(_relation(" ".join(one).strip(), " ".join(other).strip(), both, x, y))
    return made


def _relation(one: str, other: str, pairs: Sequence[tuple[str, str]], x: list[float], y: list[float]) -> Chart:
    varied = len(set(x)) > 1 and len(set(y)) > 1
    rank = float(stats.spearmanr(x, y).statistic) if varied else float("nan")
    linear = float(stats.pearsonr(x, y).statistic) if varied else float("nan")
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    servers = list(dict.fromkeys(server for _, server in pairs))
    for place, server in enumerate(servers):
        mine = [index for index, pair in enumerate(pairs) if pair[1] == server]
        axes.scatter(
            [x[index] for index in mine], [y[index] for index in mine], s=30, label=server,
            color=COLOURS[place % len(COLOURS)], marker="os^Dv"[place // len(COLOURS) % 5],
        )  # fmt: skip
    axes.set(xlabel=f"{one}: Mbit/s", ylabel=f"{other}: Mbit/s", title=f"Spearman {rank:.2f}, Pearson {linear:.2f}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True)
    axes.legend(title="server", fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    table = [{"client": pair[0], "server": pair[1], one: a, other: b} for pair, a, b in zip(pairs, x, y, strict=True)]
    return Chart(
        _name("relation", one, other), svg(figure),
        f"Median goodput of {len(pairs)} pairs in {one} and in {other}; Spearman's rank correlation is {rank:.2f}.",
        f"Scatter plot of goodput in {one} and {other}", table,
    )  # fmt: skip


def _over_time(runs: pl.DataFrame) -> Chart | None:
    """Every run at the time of day at which it was done (figure 5.24 of the thesis)."""
    if "began" not in runs.columns:
        return None
    have = runs.filter(pl.col("bit_s").is_not_null() & pl.col("began").is_not_null())
    if have.is_empty():
        return None
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    axes = figure.subplots()
    for place, case in enumerate(have["case"].unique(maintain_order=True)):
        mine = have.filter(pl.col("case") == case)
        axes.scatter(
            mine["began"].to_list(), (mine["bit_s"] / MBIT).to_list(), s=12, label=case,
            color=COLOURS[place % len(COLOURS)],
        )  # fmt: skip
    axes.set(ylabel="goodput, Mbit/s", xlabel="when the run was begun, UTC", title="Results over time")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True)
    figure.autofmt_xdate()
    axes.legend(fontsize=8, frameon=False)
    return Chart(
        "over-time", svg(figure), "Goodput of every run at the time at which it was begun; failures are zeros.",
        "Scatter plot of goodput over time", have.select("began", "case", "client", "server", "bit_s").to_dicts(),
    )  # fmt: skip
