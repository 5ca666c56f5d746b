"""The report of a campaign: a directory of static files, for a browser on any screen."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from bentpipe_lab.analysis import campaign as analysis
from bentpipe_lab.analysis import published as beside_published
from bentpipe_lab.analysis.campaign import Beside, MetricRow, PointRow
from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.campaign.plan import QUICK
from bentpipe_lab.campaign.preemption import UNKNOWN
from bentpipe_lab.records import published, tables
from bentpipe_lab.report.areas import working_areas
from bentpipe_lab.report.charts import Chart, Looks, all_charts
from bentpipe_lab.report.metrics import described, metric_charts
from bentpipe_lab.report.over_runs import over_runs
from bentpipe_lab.report.pages import page_loads
from bentpipe_lab.report.sequence import sequence_numbers
from bentpipe_lab.report.style import told
from bentpipe_lab.report.tables import seconds, times
from bentpipe_lab.room import room
from bentpipe_lab.studies.measured import Measured
from bentpipe_lab.studies.section import Section
from bentpipe_lab.studies.sections import SECTIONS
from bentpipe_lab.systems import SYSTEMS, baseline
from bentpipe_lab.terminal import command
from bentpipe_lab.workloads import WORKLOADS

PAGE, FIGURES, DATA = "index.html", "figures", "data"
SHOWN_FAILURES = 60
MOST_COMPARED = 400
MANY_LINES = 60
"""A longer table is folded until somebody wants to see it."""
SIGNIFICANT = 0.05


def write(campaign: Campaign) -> Path:
    """Write tables, figures and page from the runs' directories; the page."""
    tables.write(campaign)
    return draw(campaign)


def draw(campaign: Campaign) -> Path:
    """Write figures and page from the tables; no run is read."""
    runs = tables.read(campaign.directory)
    rows = analysis.rows(runs)
    metrics = tables.metrics(campaign.directory)
    figures = analysis.metric_rows(rows, runs, metrics)
    samples = campaign.directory / tables.SAMPLES_TABLE
    areas = working_areas(rows, samples, _published_means(campaign, figures))
    together = over_runs(rows, samples, Looks(row.variant for row in rows))
    charts = [
        *page_loads(rows), *sequence_numbers(rows, samples, metrics), *all_charts(rows, samples), *together, *areas,
        *metric_charts(figures),
    ]  # fmt: skip
    target = campaign.directory / directories.REPORT
    # An earlier report stands until the new one is whole.
    part = target.with_name(f"{target.name}.part")
    with room(target, "ask for it again"), _cleared(part):
        for place in (FIGURES, DATA):
            (part / place).mkdir(parents=True)
        for chart in charts:
            (part / FIGURES / f"{chart.name}.svg").write_text(chart.svg)
            (part / DATA / f"{chart.name}.csv").write_text(chart.csv())
        summary(rows).write_csv(part / DATA / "points.csv")
        metric_summary(figures).write_csv(part / DATA / "metrics.csv")
        (part / PAGE).write_text(_page(campaign, runs, rows, figures, charts))
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    return target / PAGE


@contextmanager
def _cleared(directory: Path) -> Iterator[None]:
    """Without a directory before and after the block."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def summary(rows: Sequence[PointRow]) -> pl.DataFrame:
    """A row per point, as it is written beside the page."""
    return pl.DataFrame(
        [
            {
                "point": row.point,
                "clock": row.clock,
                **{f"{tables.AXIS}{name}": value for name, value in row.axes.items()},
                "n_ok": row.n_ok,
                "n_total": row.n_total,
                "late": row.late,
                "median_s": row.interval.median if row.interval else None,
                "low_s": row.interval.low if row.interval and row.interval.told else None,
                "high_s": row.interval.high if row.interval and row.interval.told else None,
                "bound_s": row.bound_s,
                "x_bound": row.x_bound,
                "goodput_mbit_s": row.goodput.median if row.goodput else None,
                "verdicts": "; ".join(f"{count} {verdict}" for verdict, count in row.verdicts.items()),
            }
            for row in rows
        ],
        infer_schema_length=None,
    )


def metric_summary(figures: Sequence[MetricRow]) -> pl.DataFrame:
    """A row per point and further figure, as it is written beside the page."""
    return pl.DataFrame(
        [
            {
                "point": each.row.point, "metric": each.metric, "n": each.interval.n, "n_total": each.row.n_total,
                "median": each.interval.median,
                "low": each.interval.low if each.interval.told else None,
                "high": each.interval.high if each.interval.told else None,
            }
            for each in figures
        ],
        schema={
            "point": pl.String, "metric": pl.String, "n": pl.Int64, "n_total": pl.Int64, "median": pl.Float64,
            "low": pl.Float64, "high": pl.Float64,
        },
    )  # fmt: skip


def _page(
    campaign: Campaign, runs: pl.DataFrame, rows: Sequence[PointRow], figures: Sequence[MetricRow],
    charts: Sequence[Chart],
) -> str:  # fmt: skip
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe_lab.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    environment.filters["times"] = times
    environment.globals["many"] = MANY_LINES
    provenance = directories.provenance_of(campaign.directory)
    verdicts = Counter[str]()
    for row in rows:
        verdicts.update(row.verdicts)
    beside = analysis.beside(rows)
    return environment.get_template("campaign.html.j2").render(
        plan=campaign.plan,
        text=campaign.plan.text,
        points=len(campaign.points()),
        rows=[_line(row) for row in rows],
        axes=tables.axes(runs),
        verdicts=verdicts.most_common(),
        total=sum(verdicts.values()),
        late=sum(row.late for row in rows),
        figures=_metric_lines(figures),
        published=_published_lines(campaign, figures),
        section=_section(campaign, rows, figures),
        published_source=published.source(campaign.plan.published) if campaign.plan.published else "",
        measures={
            name: WORKLOADS[name].measures for name in sorted({row.workload for row in rows}) if name in WORKLOADS
        },
        systems={row.axes["system"]: _label(row.axes["system"]) for row in rows},
        beside=[_comparison(each) for each in beside[:MOST_COMPARED]],
        beside_left_out=max(0, len(beside) - MOST_COMPARED),
        clocks=[_comparison(each) for each in analysis.clocks(rows)],
        charts=[_figure(chart) for chart in charts],
        failures=_failures(runs),
        conditions={**conditions(provenance), **_later_builds(campaign, provenance)},
        command=command("redraw", campaign.directory),
        records=campaign.store_url,
    )


def conditions(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What a reader must know to judge the numbers, or to repeat them."""
    machine = provenance["machine"]
    return {
        "Begun": provenance["begun"],
        "Written": datetime.now(UTC).isoformat(timespec="seconds"),
        "Revision": provenance["revision"],
        "Machine": f"{machine['host']}: {machine['processor']}, {machine['processors']} processors,"
        f" {machine['memory_bytes'] / 1e9:.0f} GB",
        "Kernel": f"{machine['kernel']}, preemption {machine.get('preemption', UNKNOWN)}",
        "Versions": ", ".join(f"{name} {version}" for name, version in provenance["versions"].items()),
        "Binary": f"SHA-256 {provenance['binary_sha256']}",
        "Plan": f"SHA-256 {provenance['plan_sha256']}",
        "Command": " ".join(provenance["command"]),
    }


def _later_builds(campaign: Campaign, begun: Mapping[str, Any]) -> dict[str, str]:
    """Other builds that went on with a campaign than the one that it was begun with."""
    since: dict[tuple[str, str | None], str] = {}
    for each in campaign.builds():
        since.setdefault((each.revision, each.binary_sha256), each.at)
    since.pop((begun["revision"], begun["binary_sha256"]), None)
    lines = [f"revision {revision}, binary SHA-256 {binary}, from {at} on" for (revision, binary), at in since.items()]
    return {"Gone on with": "; ".join(lines)} if lines else {}


def _line(row: PointRow) -> dict[str, Any]:
    others = {verdict: count for verdict, count in row.verdicts.items() if verdict != "ok"}
    return {
        "clock": row.clock,
        "axes": row.axes,
        "row": row,
        "p95": sorted(row.times)[min(len(row.times) - 1, int(0.95 * len(row.times)))] if row.times else None,
        "others": ", ".join(f"{count} {verdict}" for verdict, count in others.items()),
    }


def study(campaign: Campaign) -> Section | None:
    """What the study says of itself, from the tables; None where it has no section."""
    if _section_of(campaign) is None:
        return None
    runs = tables.read(campaign.directory)
    rows = analysis.rows(runs)
    return _section(campaign, rows, analysis.metric_rows(rows, runs, tables.metrics(campaign.directory)))


def _section(campaign: Campaign, rows: Sequence[PointRow], figures: Sequence[MetricRow]) -> Section | None:
    """What a study says of itself beside what every campaign shows."""
    section = _section_of(campaign)
    return None if section is None else section(Measured(rows, figures, campaign.directory / tables.SAMPLES_TABLE))


def _section_of(campaign: Campaign) -> Callable[[Measured], Section] | None:
    return SECTIONS.get(campaign.plan.published or campaign.plan.name.removesuffix(QUICK))


def _metric_lines(figures: Sequence[MetricRow]) -> list[dict[str, Any]]:
    """A line per point and figure, with its unit, and beside it the baseline's where there is one."""
    points = list({each.row.point: each.row for each in figures}.values())
    base_of = {
        row.point: base.point
        for base, others in analysis.settings(points)
        for row in others
        if base.axes["system"] == baseline().name
    }
    medians = {(each.row.point, each.metric): each.interval.median for each in figures}
    lines = []
    for each in figures:
        ratio = medians.get((base_of.get(each.row.point, ""), each.metric)) or None
        metric = described(each)
        lines.append(
            {
                "what": ", ".join([each.row.clock, *each.row.setting.values()]),
                "variant": each.row.variant,
                "title": metric.title,
                "unit": metric.unit,
                "interval": each.interval,
                "of": f"{each.interval.n} of {each.row.n_total}",
                "ratio": None if ratio is None else each.interval.median / ratio,
            }
        )
    return lines


def _published_means(campaign: Campaign, figures: Sequence[MetricRow]) -> dict[str, list[tuple[float, float]]]:
    """Published round-trip times in ms and goodputs in Mbit/s of the legs of a run, by point."""
    theirs = {
        (each.ours.row.point, each.ours.metric): each.theirs
        for each in beside_published.pairs(campaign.plan.published or "", figures)
    }
    found: dict[str, list[tuple[float, float]]] = {}
    for (point, metric), goodput in theirs.items():
        if metric.startswith("leg_") and metric.endswith("_udp_payload_mbit_s"):
            rtt_s = theirs.get((point, metric.replace("_udp_payload_mbit_s", "_rtt_s")))
            if rtt_s is not None:
                found.setdefault(point, []).append((rtt_s * 1e3, goodput))
    return found


def _published_lines(campaign: Campaign, figures: Sequence[MetricRow]) -> list[dict[str, Any]]:
    """A line for each published figure that a point of the campaign has too."""
    return [
        {
            "what": ", ".join([each.ours.row.clock, *each.ours.row.setting.values()]),
            "variant": each.ours.row.variant,
            "title": described(each.ours).title,
            "unit": described(each.ours).unit,
            "theirs": each.theirs,
            "their_spread": each.their_spread,
            "their_runs": each.their_runs,
            "interval": each.ours.interval,
            "of": f"{each.ours.interval.n} of {each.ours.row.n_total}",
            "difference": f"{each.difference:+.1%}",
            "large": each.large,
        }
        for each in beside_published.pairs(campaign.plan.published or "", figures)
    ]


def _label(system: str) -> str:
    return SYSTEMS[system].label if system in SYSTEMS else system


def _comparison(each: Beside) -> dict[str, Any]:
    return {
        "what": ", ".join([each.row.clock, *each.row.setting.values()]),
        "figure": each.row.counts.title,
        "more": each.row.counts.better == "more",
        "reference": each.reference.variant,
        "variant": each.row.variant,
        "n": each.of,
        "ratio": each.comparison.ratio,
        "welch": _p(each.comparison.welch_p),
        "mann_whitney": _p(each.comparison.mann_whitney_p),
        "holm": _p(each.p),
        "differs": each.p is not None and each.p < SIGNIFICANT,
        "effect": f"{each.comparison.effect:+.2f}",
    }


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _figure(chart: Chart) -> dict[str, Any]:
    return {"chart": chart, "svg": told(chart.svg, chart.alternative)}


def _failures(runs: pl.DataFrame) -> dict[str, Any]:
    """Attempts that did not end well, by verdict, with an example's directory each."""
    bad = runs.filter(pl.col("verdict") != "ok")
    grouped = (
        bad.group_by("point", "verdict", maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("detail").first(), pl.col("repetition").first(), pl.col("attempt").first())
        .rows(named=True)
    )
    return {"shown": grouped[:SHOWN_FAILURES], "left_out": max(0, len(grouped) - SHOWN_FAILURES)}
