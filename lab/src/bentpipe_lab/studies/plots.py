"""The studies' drawings, as SVG text."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from bentpipe_lab.report.style import FAINT, INK, MUTED, svg

COLOUR = {
    "satellite": "#1668b8",
    "bbr3": "#b3261e",
    "bbr3-library": "#d98b86",
    "cubic": "#d9822b",
    "cubic-search": "#a8771a",
    "newreno": "#5c6875",
    "hybla": "#1a7f4b",
}
LEG_COLOUR = ("#1668b8", "#d9822b")
Points = Sequence[tuple[float, float]]


def colour(controller: str) -> str:
    """The controller's, the same in every drawing."""
    return COLOUR.get(controller, INK)


def working_areas(
    panels: Mapping[str, Sequence[Points]],
    base_rtts_ms: Sequence[float],
    capacity_mbit_s: float,
    theirs: Mapping[str, Points],
) -> str:
    """Goodput against round-trip time, a dot per second, one panel per case; a cross is what was published."""
    figure = Figure(figsize=(11, 3.0), layout="constrained")
    axes_of = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, legs) in zip(axes_of, panels.items(), strict=True):
        axes.axhline(capacity_mbit_s, color=MUTED, linewidth=0.8)
        for number, points in enumerate(legs):
            axes.axvline(base_rtts_ms[number], color=LEG_COLOUR[number], linewidth=0.8, linestyle=(0, (4, 3)))
            axes.scatter(
                [rtt for rtt, _ in points], [rate for _, rate in points], s=7, alpha=0.5, linewidths=0,
                color=LEG_COLOUR[number], label=f"RTT {base_rtts_ms[number]:g} ms",
            )  # fmt: skip
        for number, (rtt, rate) in enumerate(theirs.get(title, ())):
            axes.plot(
                rtt, rate, marker="x", markersize=9, markeredgewidth=2.2, color=INK, linestyle="none",
                label="published mean" if number == 0 else None,
            )  # fmt: skip
        axes.set_title(title)
        axes.grid(visible=True)
        axes.set_xlim(50, 275)
        axes.set_ylim(0, capacity_mbit_s * 1.08)
        axes.set_xlabel("round-trip time, ms")
    axes_of[0].set_ylabel("Mbit/s")
    axes_of[-1].legend(loc="lower right", frameon=False, fontsize=8)
    return svg(figure)


def curves(
    panels: Mapping[str, Mapping[str, Points]], x_label: str, y_label: str, *, log_x: bool = False,
) -> str:  # fmt: skip
    """A line per controller, one panel per case."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    subplots = figure.subplots(1, max(len(panels), 1), sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(subplots, panels.items(), strict=False):
        for controller, points in lines.items():
            axes.plot(
                [x for x, _ in points], [y for _, y in points], marker="o", markersize=3.2, linewidth=1.5,
                color=colour(controller), label=controller,
            )  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.grid(visible=True, color=FAINT)
        if log_x:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
    subplots[0].set_ylabel(y_label)
    subplots[-1].legend(loc="best", frameon=False, fontsize=9)
    return svg(figure)


def bars(groups: Mapping[str, Mapping[str, float]], y_label: str, lines: Mapping[str, float] | None = None) -> str:
    """A group of bars per case, a bar per controller; `lines` are named heights."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(len(names), 1)
    for number, name in enumerate(names):
        places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(groups))]
        heights = [group.get(name, 0.0) for group in groups.values()]
        axes.bar(places, heights, width=width * 0.92, color=colour(name), label=name)
    for name, height in (lines or {}).items():
        axes.axhline(height, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(name, (1.0, height), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    return svg(figure)
