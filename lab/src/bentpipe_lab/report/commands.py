"""What `bentpipe-lab` does with results: report, redraw, compare, export."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import duckdb
import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from bentpipe_lab.analysis import campaign as analysis
from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.errors import CampaignError
from bentpipe_lab.records import tables
from bentpipe_lab.registry import unknown
from bentpipe_lab.report import campaign as page
from bentpipe_lab.report import results
from bentpipe_lab.report.charts import label
from bentpipe_lab.report.tables import seconds
from bentpipe_lab.room import room
from bentpipe_lab.terminal import command, put

FORMATS = ("csv", "parquet", "duckdb", "results")
CLEAR = 0.05


def report(directory: Path, console: Console) -> int:
    """Write tables, figures and page of a campaign, from its runs; print what the study says of itself."""
    campaign = _there(directories.opened(directory), console)
    written = page.write(campaign)
    section = page.study(campaign)
    for paragraph in section.paragraphs if section else []:
        console.print(paragraph, highlight=False)
    for each in section.tables if section else []:
        table = Table(title=each.caption, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(each.head):
            table.add_column(name, justify="right" if place else "left")
        for row in each.rows:
            table.add_row(*(cell if isinstance(cell, str) else cell.text for cell in row))
        put(console, table)
    console.print(f"{written}", highlight=False, soft_wrap=True)
    return 0


def redraw(directory: Path, console: Console) -> int:
    """Draw figures and page of a campaign again, from its tables."""
    campaign = directories.opened(directory)
    if not (directory / tables.RUNS_TABLE).exists():
        raise CampaignError(f"{directory} has no tables yet; `{command('report', directory)}` writes them")
    console.print(f"{page.draw(campaign)}", highlight=False, soft_wrap=True)
    return 0


def compare(first: Path, second: Path, console: Console) -> int:
    """Print the points that two campaigns have in common, one beside the other."""
    rows = [analysis.rows(_runs(_there(directories.opened(each), console))) for each in (first, second)]
    found = analysis.campaigns(*rows)
    points = [{row.point for row in some} for some in rows]
    if not found:
        raise CampaignError(f"{first} and {second} have no point in common in which runs of both ended well")
    table = Table(title=f"{second} as a multiple of {first}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("point")
    for name in ("first", "second", "n of N", "ratio", "Holm p", "Cliff's delta"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        clear = each.p is not None and each.p < CLEAR
        ratio = f"{each.comparison.ratio:.3f} x"
        table.add_row(
            label(each.row),
            _figure(each.reference),
            _figure(each.row),
            each.of,
            f"[bold]{ratio}[/]" if clear else ratio,
            "-" if each.p is None else f"{each.p:.3f}",
            f"{each.comparison.effect:+.2f}",
        )
    put(console, table)
    differing = sum(each.p is not None and each.p < CLEAR for each in found)
    console.print(f"{len(found)} points in common; {differing} differ (Mann-Whitney, corrected by Holm, below {CLEAR})")
    for directory, alone in ((first, points[0] - points[1]), (second, points[1] - points[0])):
        if alone:
            console.print(f"{len(alone)} points are in {directory} alone", highlight=False, soft_wrap=True)
    without = len(points[0] & points[1]) - len(found)
    if without:
        console.print(f"{without} points are in both, but in one of them no run ended well", highlight=False)
    return 0


def _figure(row: PointRow) -> str:
    """The median of what counts of a point, with its unit."""
    value = median(row.counted)
    return seconds(value) if row.counts.unit == "s" else f"{value:.4g} {row.counts.unit}"


def export(directory: Path, form: str, out: Path | None, console: Console) -> int:
    """Write a campaign's runs, samples and further figures for other programs; `form` is one of `FORMATS`.

    The form "results" is one small table of points.
    """
    if form not in FORMATS:
        raise unknown("format", form, dict.fromkeys(FORMATS))
    campaign = _there(directories.opened(directory), console)
    sources = tables.write(campaign)
    target = out or directory / "export"
    with room(target, "ask for it again"):
        written = _exported(campaign, form, sources, target)
    for path in written:
        console.print(str(path), highlight=False, soft_wrap=True)
    return 0


def _exported(campaign: Campaign, form: str, sources: Sequence[Path], target: Path) -> list[Path]:
    """The files that were written."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    match form:
        case "csv":
            for source in sources:
                pl.scan_parquet(source).sink_csv(target / f"{source.stem}.csv")
                written.append(target / f"{source.stem}.csv")
        case "parquet":
            for source in sources:
                (target / source.name).write_bytes(source.read_bytes())
                written.append(target / source.name)
        case "results":
            written.append(target / f"{campaign.plan.name}.csv")
            written[0].write_text(results.text(campaign))
        case _:
            file = target / f"{campaign.plan.name}.duckdb"
            file.unlink(missing_ok=True)
            with duckdb.connect(str(file)) as base:
                for source in sources:
                    base.read_parquet(str(source)).create(source.stem)
            written.append(file)
    return written


def _there(campaign: Campaign, console: Console) -> Campaign:
    """A campaign of which there are runs; which of them are gone is told."""
    state = campaign.state()
    gone = campaign.gone(state)
    if gone and len(gone) == len(state.done):
        raise CampaignError(
            f"{campaign.directory}: none of its {len(gone)} runs is in {campaign.store_url} any more; put them back, or"
            f" `{command('resume', campaign.directory)}` does them again"
        )
    if gone:
        console.print(f"{len(gone)} of {len(state.done)} runs are no more in {campaign.store_url}, and are left out")
    return campaign


def _runs(campaign: Campaign) -> pl.DataFrame:
    tables.write(campaign)
    return tables.read(campaign.directory)
