"""A campaign's runs and samples as tables: one Parquet file of each, from the runs' directories."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.campaign.store import SAMPLES, Store
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import CampaignError
from bentpipe_lab.room import named, room, whole
from bentpipe_lab.terminal import command
from bentpipe_lab.workloads import WORKLOADS

RUNS_TABLE, SAMPLES_TABLE, METRICS_TABLE = "runs.parquet", "samples.parquet", "metrics.parquet"
AXIS = "axis."
"""Before the names of axes in the columns of a table."""
BATCH = 500
"""Runs whose samples are in memory together."""
SAMPLES_SCHEMA = {
    "point": pl.String,
    "repetition": pl.Int64,
    "attempt": pl.Int64,
    "at_s": pl.Float64,
    "received_bytes": pl.Int64,
    "window_bytes": pl.Int64,
    "rtt_s": pl.Float64,
    "arrived_udp_bytes": pl.Int64,
    "waited_s": pl.Float64,
    "queue_bytes": pl.Int64,
    "retransmitted_packets": pl.Int64,
}
METRICS_SCHEMA = {
    "point": pl.String,
    "repetition": pl.Int64,
    "attempt": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}
_RESULT_SCHEMA = {
    "point": pl.String,
    "repetition": pl.Int64,
    "attempt": pl.Int64,
    "verdict": pl.String,
    "detail": pl.String,
    "seconds": pl.Float64,
    "bytes_received": pl.Int64,
    "bound_s": pl.Float64,
}


def write(campaign: Campaign) -> tuple[Path, Path, Path]:
    """Write the tables from what the runs' directories hold now; the same runs give the same bytes."""
    runs, samples, metrics = (campaign.directory / name for name in (RUNS_TABLE, SAMPLES_TABLE, METRICS_TABLE))
    found = sorted(campaign.store.complete(), key=lambda run: (run.point, run.repetition, run.attempt))
    results = [campaign.store.result(run) for run in found]
    with room(campaign.directory, "ask for it again"):
        with whole(runs) as part:
            _runs(campaign, results).write_parquet(part)
        with whole(metrics) as part:
            _metrics(results).write_parquet(part)
        with whole(samples) as part:
            _samples(campaign.store, found, part)
    return runs, samples, metrics


def read(directory: Path) -> pl.DataFrame:
    """The runs of a campaign whose tables are written."""
    return _read(directory / RUNS_TABLE, [*_RESULT_SCHEMA, "figure", "place", "clock", "limit_s", "counts"])


def metrics(directory: Path) -> pl.DataFrame:
    """The further figures of a campaign's runs, a row each."""
    path = directory / METRICS_TABLE
    return _read(path, list(METRICS_SCHEMA)) if path.exists() else pl.DataFrame(schema=METRICS_SCHEMA)


def _read(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    """A table, or an error where it is damaged, or of another version."""
    try:
        table = pl.read_parquet(file)
    except pl.exceptions.PolarsError as error:
        raise CampaignError(f"{file} is damaged; `{command('report', file.parent)}` writes it again") from error
    lacking = [name for name in columns if name not in table.columns]
    if lacking:
        raise CampaignError(
            f"{file} is of another version of the lab, without {', '.join(lacking)};"
            f" `{command('report', file.parent)}` writes it again"
        )
    return table


def axes(runs: pl.DataFrame) -> list[str]:
    """The axes of a table of runs, without their prefix."""
    return [name.removeprefix(AXIS) for name in runs.columns if name.startswith(AXIS)]


def _runs(campaign: Campaign, found: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """One row per attempt; `counts` where it is the last of its repetition and was not late."""
    known = campaign.points()
    workloads = {point["id"]: point["workload"] for point in known}
    results = pl.DataFrame(
        [{**{name: result[name] for name in _RESULT_SCHEMA}, "figure": _figure(workloads, result)} for result in found],
        schema={**_RESULT_SCHEMA, "figure": pl.Float64},
    )
    names = list(dict.fromkeys(axis for point in known for axis in point["axes"]))
    points = pl.DataFrame(
        [
            {
                "point": point["id"],
                "place": place,
                "clock": point["clock"],
                "system": point["system"],
                "settings": point["settings"],
                "workload": point["workload"],
                "limit_s": point["limit_s"],
                **{f"{AXIS}{name}": _text(point["axes"].get(name)) for name in names},
            }
            for place, point in enumerate(known)
        ],
        schema={
            "point": pl.String, "place": pl.Int64, "clock": pl.String, "system": pl.String, "settings": pl.String,
            "workload": pl.String, "limit_s": pl.Float64, **{f"{AXIS}{name}": pl.String for name in names},
        },
    )  # fmt: skip
    joined = results.join(points, on="point", how="inner")
    last = pl.col("attempt") == pl.col("attempt").max().over("point", "repetition")
    return joined.with_columns(
        counts=last & (pl.col("verdict") != "emulator late"), x_bound=pl.col("seconds") / pl.col("bound_s")
    ).sort("place", "repetition", "attempt")


def _figure(workloads: Mapping[str, str], result: Mapping[str, Any]) -> float | None:
    """What counts of a run; of a workload that this lab has not, its time."""
    workload, seconds = workloads.get(result["point"], ""), result["seconds"]
    if workload not in WORKLOADS:
        return None if seconds is None else float(seconds)
    return WORKLOADS[workload].figure(seconds, result.get("metrics", {}))


def _metrics(results: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A row per figure of an attempt."""
    return pl.DataFrame(
        [
            (result["point"], result["repetition"], result["attempt"], name, float(value))
            for result in results
            for name, value in result.get("metrics", {}).items()
        ],
        schema=METRICS_SCHEMA, orient="row",
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _samples(store: Store, found: Sequence[Run], target: Path) -> None:
    """Samples of all runs, a part at a time, joined without having them all in memory."""
    parts = []
    try:
        for number, first in enumerate(range(0, len(found), BATCH)):
            some = found[first : first + BATCH]
            frame = pl.DataFrame(_of_runs(store, some), schema=SAMPLES_SCHEMA)
            part = target.with_name(f"{target.name}.{number}.part")
            parts.append(part)
            with named(target.parent):
                frame.write_parquet(part)
        if parts:
            with named(target.parent):
                pl.scan_parquet(parts).sink_parquet(target)
        else:
            pl.DataFrame(schema=SAMPLES_SCHEMA).write_parquet(target)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def _of_runs(store: Store, runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The samples of some runs, by column: one frame for all costs less than one for each."""
    columns: dict[str, list[Any]] = {name: [] for name in SAMPLES_SCHEMA}
    given = [name for name in SAMPLES_SCHEMA if name not in ("point", "repetition", "attempt")]
    for run in runs:
        text = store.text(run, SAMPLES) if store.holds(run, SAMPLES) else ""
        samples = [json.loads(line) for line in text.splitlines()]
        for name in given:
            columns[name] += [sample.get(name) for sample in samples]
        for name, value in (("point", run.point), ("repetition", run.repetition), ("attempt", run.attempt)):
            columns[name] += [value] * len(samples)
    return columns
