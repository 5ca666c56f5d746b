"""The matrix as a table: its runs by client, server and case, and what is said of a cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bentpipe_lab.errors import CampaignError
from bentpipe_lab.records.tables import AXIS
from bentpipe_lab.records.verdict import Verdict

CASE, CLIENT, SERVER = "case", "client", "server"
RUN = ("point", "repetition", "attempt")
GOODPUT = "goodput_whole_bit_s"
"""The definition that is drawn: from the connection's first packet to its last new byte."""
DEFINITIONS = {
    "goodput_whole_bit_s": "from the client's first packet to the last new byte, what a user waits for",
    "goodput_server_packets_bit_s": "between the server's first and last 1-RTT packet, as the interop runner counts",
    "goodput_request_bit_s": "from the client's first stream byte to the last new byte of the answer",
}
APART = (Verdict.NOT_INSTALLED, Verdict.UNSUPPORTED, Verdict.EMULATOR_LATE, Verdict.CAPTURE_DAMAGED)
"""Verdicts that say nothing of how a pair performs."""


@dataclass(frozen=True)
class Cell:
    """A pair of implementations in a case."""

    point: str
    case: str
    client: str
    server: str
    further: str
    """What else its point has: windows, controller, initial window."""
    n_ok: int
    n: int
    """Runs that say something: without those of `APART`."""
    late: int
    verdicts: dict[str, int]
    goodput_bit_s: list[float]
    """A value a run that says something; failures are zero. Of one that ended well without keys there is none."""

    @property
    def median_bit_s(self) -> float | None:
        """The median goodput, failures as zero; None when no run says anything."""
        return float(pl.Series(self.goodput_bit_s).median()) if self.goodput_bit_s else None  # type: ignore[arg-type]


def runs(table: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """The last attempt of every repetition, with columns `case`, `client`, `server`, `further` and `bit_s`."""
    goodput = metrics.filter(pl.col("metric") == GOODPUT).select(*RUN, pl.col("value").alias(GOODPUT))
    table = table.join(goodput, on=RUN, how="left")
    last = pl.col("attempt") == pl.col("attempt").max().over("point", "repetition")
    case = f"{AXIS}case" if f"{AXIS}case" in table.columns else f"{AXIS}scenario"
    client, server = f"{AXIS}workload.client", f"{AXIS}workload.server"
    for name in (client, server):
        if name not in table.columns:
            raise CampaignError(f"this campaign is no matrix: it has no axis {name.removeprefix(AXIS)}")
    known = {case, client, server}
    rest = [name for name in table.columns if name.startswith(AXIS) and name not in known]
    # What a case has only one value of is the case's own.
    values = table.group_by(case).agg(pl.col(rest).n_unique())
    varied = [name for name in rest if values[name].max() > 1]  # type: ignore[operator]
    further = pl.concat_str([pl.col(name).fill_null("") for name in varied], separator=" ") if varied else pl.lit("")
    ok = pl.col("verdict").is_in([Verdict.OK])
    apart = pl.col("verdict").is_in([str(verdict) for verdict in APART])
    return table.filter(last).with_columns(
        pl.col(case).alias(CASE),
        pl.col(client).alias(CLIENT),
        pl.col(server).alias(SERVER),
        further.alias("further"),
        pl.when(apart).then(None).when(ok).then(pl.col(GOODPUT)).otherwise(0.0).alias("bit_s"),
    )


def cells(counted: pl.DataFrame) -> list[Cell]:
    """All cells of a table of `runs`, in the order of the plan."""
    found = []
    grouped = counted.group_by("place", "point", CASE, CLIENT, SERVER, "further", maintain_order=True)
    for (_, point, case, client, server, further), part in grouped:
        verdicts: dict[str, int] = dict(part["verdict"].value_counts(sort=True).iter_rows())
        values = part["bit_s"].drop_nulls().to_list()
        found.append(
            Cell(
                str(point), str(case), str(client), str(server), str(further), verdicts.get(Verdict.OK, 0),
                sum(count for verdict, count in verdicts.items() if verdict not in APART),
                verdicts.get(Verdict.EMULATOR_LATE, 0), verdicts, values,
            )
        )  # fmt: skip
    return found


def groups(found: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """Cells by case and what else varies, in the order of the plan."""
    by: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        by.setdefault((cell.case, cell.further), []).append(cell)
    return by


def names(found: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Clients and servers, each once, by name: what is added later moves nothing else."""
    return sorted({cell.client for cell in found}), sorted({cell.server for cell in found})


def summary(found: Sequence[Cell]) -> pl.DataFrame:
    """A row a cell, to be kept and compared."""
    rows: list[dict[str, Any]] = [
        {
            "case": cell.case, "further": cell.further, "client": cell.client, "server": cell.server,
            "n_ok": cell.n_ok, "n": cell.n, "late": cell.late,
            "median_mbit_s": None if cell.median_bit_s is None else round(cell.median_bit_s / 1e6, 3),
            "verdicts": "; ".join(f"{count} {verdict}" for verdict, count in cell.verdicts.items()),
        }
        for cell in found
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def ends(found: Sequence[Cell]) -> pl.DataFrame:
    """A row for each implementation as server and as client, by case: least, median and most of its pairs' medians."""
    rows: list[dict[str, Any]] = []
    for role in (SERVER, CLIENT):
        for (case, further), some in groups(found).items():
            for name in sorted({getattr(cell, role) for cell in some}):
                mine = [cell for cell in some if getattr(cell, role) == name]
                values = pl.Series([cell.median_bit_s for cell in mine if cell.median_bit_s is not None]) / 1e6
                figures = {"least": values.min(), "median": values.median(), "most": values.max()}
                rows.append(
                    {"role": role, "name": name, "case": case, "further": further, "pairs": values.len(),
                     **{f"{which}_mbit_s": None if not values.len() else round(float(value), 2)  # type: ignore[arg-type]
                        for which, value in figures.items()},
                     "n_ok": sum(cell.n_ok for cell in mine), "n": sum(cell.n for cell in mine)}
                )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def share_of_server(found: Sequence[Cell]) -> tuple[float, float] | None:
    """How much of the variance of a case's medians the server alone explains, and the client alone (eta squared)."""
    have = [cell for cell in found if cell.median_bit_s is not None]
    values = pl.DataFrame(
        {"client": [c.client for c in have], "server": [c.server for c in have],
         "bit_s": [c.median_bit_s for c in have]}
    )  # fmt: skip
    if values.height < 4:
        return None
    mean = float(values["bit_s"].mean() or 0.0)  # type: ignore[arg-type]
    total = float(((values["bit_s"] - mean) ** 2).sum())
    if total == 0:
        return None

    def between(side: str) -> float:
        parts = values.group_by(side).agg(pl.col("bit_s").mean().alias("mean"), pl.len().alias("n"))
        return float((parts["n"] * (parts["mean"] - mean) ** 2).sum()) / total

    return between("server"), between("client")
