"""The site of a matrix: static pages with heat maps and figures, and a page for each cell with its runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.campaign.store import PROVENANCE
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.matrix import charts, drawings, table
from bentpipe_lab.matrix.drawings import Drawing
from bentpipe_lab.matrix.evidence import FACTS
from bentpipe_lab.matrix.table import Cell
from bentpipe_lab.records import tables
from bentpipe_lab.report.campaign import conditions
from bentpipe_lab.terminal import command

SITE, CELLS, DATA = "matrix", "cells", "data"
VIEWER = "packets.js"
LOGS = ("client.log", "server.log")
LONGEST_LOG = 6000


def write(campaign: Campaign) -> Path:
    """Write tables and site from the runs' directories; the first page. Pages of cells keep their addresses."""
    tables.write(campaign)
    everything = tables.read(campaign.directory)
    everything = everything.with_columns(pl.Series("began", _begins(campaign, everything), dtype=pl.Datetime("us")))
    metrics = tables.metrics(campaign.directory)
    runs = table.runs(everything, metrics)
    found = table.cells(runs)
    target = campaign.directory / SITE
    for part in (CELLS, DATA):
        (target / part).mkdir(parents=True, exist_ok=True)
    table.summary(found).write_csv(target / DATA / "cells.csv")
    ends = table.ends(found)
    ends.write_csv(target / DATA / "ends.csv")
    drawn = charts.all_charts(found, runs)
    for chart in drawn:
        (target / DATA / f"{chart.name}.csv").write_text(chart.csv())
    viewer = files("bentpipe_lab.matrix") / "templates" / VIEWER
    (target / CELLS / VIEWER).write_text(viewer.read_text())
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe_lab.matrix"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    drawings.draw(_drawings(campaign, runs, target / CELLS))
    for cell in found:
        mine = runs.filter(pl.col("point") == cell.point)
        page = environment.get_template("cell.html.j2").render(
            cell=cell, runs=_runs_of(campaign, mine, metrics, target / CELLS), definitions=table.DEFINITIONS,
            plan=campaign.plan, command=_command(campaign, cell),
        )  # fmt: skip
        (target / CELLS / f"{cell.point}.html").write_text(page)
    index = environment.get_template("index.html.j2").render(
        plan=campaign.plan,
        maps=[_heat_map(case, further, some) for (case, further), some in table.groups(found).items()],
        ends=_by_end(ends),
        charts=[{"chart": chart, "svg": Markup(chart.svg)} for chart in drawn],  # noqa: S704 (drawn by us)
        total=sum(cell.n for cell in found),
        ok=sum(cell.n_ok for cell in found),
        late=sum(cell.late for cell in found),
        failed=[cell for cell in found if cell.n_ok < cell.n],
        definitions=table.DEFINITIONS,
        drawn=table.DEFINITIONS[table.GOODPUT],
        conditions=conditions(json.loads((campaign.directory / directories.PROVENANCE).read_text())),
        command=f"bentpipe-lab matrix --site-only {campaign.directory}",
    )
    (target / "index.html").write_text(index)
    return target / "index.html"


def _drawings(campaign: Campaign, runs: pl.DataFrame, target: Path) -> Iterator[Drawing]:
    """What is drawn of each run that is on this machine."""
    local = campaign.store.local
    if local is None:
        return
    for _, same in runs.group_by("point", maintain_order=True):
        attempts = [Run(*row) for row in same.select("point", "repetition", "attempt").iter_rows()]
        places = [local / run.directory for run in attempts]
        for run, place in zip(attempts, places, strict=True):
            yield Drawing(place, [other for other in places if other != place], target / _drawing_name(run))


def _drawing_name(run: Run) -> str:
    return f"{run.point}-{run.directory.rpartition('/')[2]}"


def _begins(campaign: Campaign, runs: pl.DataFrame) -> list[datetime | None]:
    """When each run was begun."""
    found: list[datetime | None] = []
    for row in runs.select("point", "repetition", "attempt").iter_rows():
        run = Run(*row)
        kept = campaign.store.text(run, PROVENANCE) if campaign.store.holds(run, PROVENANCE) else "{}"
        began = json.loads(kept).get("began")
        found.append(None if began is None else datetime.fromisoformat(began).replace(tzinfo=None))
    return found


def _heat_map(case: str, further: str, some: Sequence[Cell]) -> dict[str, Any]:
    clients, servers = table.names(some)
    by = {(cell.client, cell.server): cell for cell in some}
    most = max((cell.median_bit_s or 0.0 for cell in some), default=0.0)
    share = table.share_of_server(some)
    return {
        "title": f"{case} {further}".strip(),
        "servers": servers,
        "rows": [
            {"client": client, "cells": [_square(by.get((client, server)), most) for server in servers]}
            for client in clients
        ],
        "share": None if share is None else {"server": share[0], "client": share[1]},
    }


def _by_end(ends: pl.DataFrame) -> list[dict[str, Any]]:
    """Servers, then clients: for each its cases in a row, the best first by the first case's median."""
    found = []
    for role in (table.SERVER, table.CLIENT):
        mine = ends.filter(pl.col("role") == role)
        cases = list(dict.fromkeys(mine.select(table.CASE, "further").iter_rows()))
        rows = [
            {"name": name, "cells": [_only(part, case, further) for case, further in cases]}
            for (name,), part in mine.group_by("name", maintain_order=True)
        ]
        rows.sort(key=lambda row: [-(cell["median_mbit_s"] or 0.0) if cell else 0.0 for cell in row["cells"]])
        found.append({"role": role, "cases": [f"{case} {further}".strip() for case, further in cases], "rows": rows})
    return found


def _only(ends: pl.DataFrame, case: str, further: str) -> dict[str, Any] | None:
    """What an implementation does in one case; None where it has no pairs there."""
    found = ends.filter(pl.col(table.CASE) == case, pl.col("further") == further).to_dicts()
    return found[0] if found else None


def _square(cell: Cell | None, most: float) -> dict[str, Any]:
    """A cell of a heat map: its colour by its share of the largest median."""
    if cell is None:
        return {"cell": None, "text": "", "shade": 0, "state": "absent"}
    median = cell.median_bit_s
    if median is None:
        said = next(iter(cell.verdicts), "")
        short = {"emulator late": "late", "unsupported": "-", "not installed": "n/i"}.get(said, said)
        return {"cell": cell, "text": short, "shade": 0, "state": "apart"}
    shade = round(100 * median / most) if most else 0
    text = f"{median / 1e6:.1f}" if cell.n_ok else "0"
    return {"cell": cell, "text": text, "shade": shade, "state": "bad" if cell.n_ok < cell.n else "good"}


def _runs_of(campaign: Campaign, runs: pl.DataFrame, metrics: pl.DataFrame, target: Path) -> list[dict[str, Any]]:
    """What a cell's page shows of each run."""
    local = campaign.store.local
    found = []
    attempts = [Run(*row) for row in runs.select("point", "repetition", "attempt").iter_rows()]
    places = [] if local is None else [local / run.directory for run in attempts]
    for number, row in enumerate(runs.iter_rows(named=True)):
        run = attempts[number]
        name = _drawing_name(run)
        logs = {name: campaign.store.text(run, name)[-LONGEST_LOG:] for name in LOGS if campaign.store.holds(run, name)}
        found.append(
            {
                "run": run, "verdict": row["verdict"], "detail": row["detail"], "began": row["began"],
                "figures": _figures(campaign, run, metrics), "logs": logs,
                "image": f"{name}.png" if (target / f"{name}.png").exists() else None,
                "packets": name if (target / f"{name}.js").exists() else None,
                "directory": "" if not places else str(places[number]),
            }
        )  # fmt: skip
    return found


def _figures(campaign: Campaign, run: Run, metrics: pl.DataFrame) -> list[tuple[str, str]]:
    """What is known of a run that is no number, then its figures."""
    facts = json.loads(campaign.store.text(run, FACTS)) if campaign.store.holds(run, FACTS) else {}
    said = [(name, _text(value)) for name, value in facts.items() if value not in (None, {})]
    mine = metrics.filter(
        (pl.col("point") == run.point) & (pl.col("repetition") == run.repetition) & (pl.col("attempt") == run.attempt)
    )
    return said + [(name, _shown(name, value)) for name, value in mine.select("metric", "value").iter_rows()]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{count} packets: {why}" for why, count in value.items())
    return str(value)


def _shown(name: str, value: float) -> str:
    if name.endswith("_bit_s"):
        return f"{value / 1e6:.3f} Mbit/s"
    if name.endswith("_s"):
        return f"{value:.3f} s"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _command(campaign: Campaign, cell: Cell) -> str:
    return f"{command('matrix', campaign.directory / directories.PLAN)} --cell {cell.point} --out REPEATED"
