"""The report's figures, as SVG text: bytes over time, page timelines, and every time against its bound."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from bentpipe_lab.analysis.stats import Row
from bentpipe_lab.records.sample import Sample
from bentpipe_lab.report.style import INK, svg
from bentpipe_lab.report.tables import seconds
from bentpipe_lab.systems import SYSTEMS


def bytes_over_time(samples: Iterable[Sample], bounds: Mapping[str, float], sizes: Mapping[str, int]) -> str:
    """One panel per download: every run's curve, and the moment before which no run can be complete."""
    samples = sorted((each for each in samples if each.outcome.curve), key=lambda each: _place(each.system))
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    for axes, (workload, size) in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes.items(), strict=True):
        unit = size / 4
        label = "MiB" if size % (1 << 20) == 0 else "MB"
        scale = 1 << 20 if label == "MiB" else 1e6
        for sample in (sample for sample in samples if sample.workload == workload):
            times, counts = zip(*[(0.0, 0), *sample.outcome.curve], strict=True)
            axes.plot(
                times, [count / scale for count in counts], color=SYSTEMS[sample.system].colour, alpha=0.75,
                linewidth=1.6, drawstyle="steps-post", label=SYSTEMS[sample.system].label,
            )  # fmt: skip
        axes.axvline(bounds[workload], color=INK, linewidth=1, linestyle=(0, (4, 3)), label="physical bound")
        axes.set(title=workload, xlabel="seconds since the request was begun", ylabel=f"{label} received")
        axes.set_xlim(left=0)
        axes.set_ylim(0, size / scale * 1.04)
        axes.yaxis.set_major_locator(MultipleLocator(unit / scale))
        axes.grid(visible=True)
        _legend(axes, loc="lower right")
    return svg(figure)


def page_timelines(samples: Iterable[Sample], workload: str) -> str:
    """The page's objects as bars, a panel per system on one time axis; of each system its median run."""
    runs = {sample.system: sample for sample in _median_runs(samples, workload)}
    figure = Figure(figsize=(10, 4.1), layout="constrained")
    panels = figure.subplots(1, max(len(runs), 1), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (system, sample) in zip(panels, runs.items(), strict=False):
        for height, item in enumerate(sample.outcome.objects):
            begin, first, end = item["requested_s"], item["first_byte_s"], item["complete_s"]
            axes.barh(height, first - begin, left=begin, height=0.8, color=SYSTEMS[system].pale)
            axes.barh(height, max(end - first, 0.008), left=first, height=0.8, color=SYSTEMS[system].colour)
        total = sample.outcome.seconds or 0.0
        axes.axvline(total, color=SYSTEMS[system].colour, linewidth=1)
        axes.annotate(
            seconds(total), (total, 1.0), xycoords=("data", "axes fraction"), xytext=(-4, -12),
            textcoords="offset points", ha="right", color=SYSTEMS[system].colour, weight="bold", fontsize=12,
        )  # fmt: skip
        axes.set(title=f"{SYSTEMS[system].label}, {workload.removeprefix('page ')}", xlabel="seconds")
        axes.grid(visible=True, axis="x")
        axes.set_axisbelow(True)
        axes.set_xlim(left=0)
    panels[0].set_ylabel("objects, in the order of request")
    panels[0].invert_yaxis()
    return svg(figure)


def against_bound(rows: Sequence[Row]) -> str:
    """Every workload's median as a multiple of its physical bound, a bar per system."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    systems = [system.name for system in SYSTEMS if any(row.system == system.name for row in rows)]
    step = 0.76 / max(len(systems), 1)
    figure = Figure(figsize=(10, 0.31 * max(len(systems), 2) * len(workloads) + 0.9), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        if row.ratio_to_bound is None or row.system not in systems:
            continue
        height = workloads.index(row.workload) + (systems.index(row.system) - (len(systems) - 1) / 2) * step
        style = SYSTEMS[row.system]
        axes.barh(height, row.ratio_to_bound, height=step * 0.9, color=style.colour, label=style.label)
        axes.annotate(
            f"{row.ratio_to_bound:.2f} x  ({seconds(row.median_s)})", (row.ratio_to_bound, height),
            xytext=(4, 0), textcoords="offset points", va="center", fontsize=9, color=INK,
        )  # fmt: skip
    axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="physical bound")
    axes.set_yticks(range(len(workloads)), workloads, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max((row.ratio_to_bound or 1 for row in rows), default=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} x"))
    axes.set_xlabel("median time as a multiple of the least that physics allows")
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
    _legend(axes, loc="lower right")
    return svg(figure)


def _median_runs(samples: Iterable[Sample], workload: str) -> list[Sample]:
    by_system: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.workload == workload and sample.outcome.seconds is not None:
            by_system.setdefault(sample.system, []).append(sample)
    return [
        sorted(by_system[system], key=lambda run: run.outcome.seconds or 0.0)[(len(by_system[system]) - 1) // 2]
        for system in SYSTEMS.names()
        if system in by_system
    ]


def _place(system: str) -> int:
    return SYSTEMS.names().index(system)


def _legend(axes: Axes, loc: Literal["lower right", "upper left"]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(list(unique.values()), list(unique), loc=loc, frameon=False, fontsize=9)
