"""Drawings of a matrix's runs: all that are missing, however many, and none twice."""

from pathlib import Path

import polars as pl
import pytest

from bentpipe_lab.matrix import drawings
from bentpipe_lab.matrix.drawings import Drawing

RUNS = drawings.FEW + 2


def tables(run: Path) -> Path:
    """The tables of a run of three packets."""
    run.mkdir()
    common = {
        "time_ns": [1_000_000_000, 1_300_000_000, 1_600_000_000], "from_client": [True, False, False],
        "protocol": ["quic"] * 3,
    }  # fmt: skip
    packets = {"kind": ["initial", "1RTT", "1RTT"], "number": [0, 1, 2], "size": [1200, 1200, 800]}
    streams = {"stream": [0, 0, 0], "offset": [0, 0, 1100], "length": [50, 1100, 700], "repeated": [0, 0, 700]}
    pl.DataFrame(common | packets).write_parquet(run / "client-packets.parquet")
    pl.DataFrame(common | streams).write_parquet(run / "server-streams.parquet")
    return run


@pytest.mark.long
def test_more_than_a_few_are_drawn_side_by_side_and_a_run_without_tables_has_none(tmp_path: Path) -> None:
    runs = [tables(tmp_path / f"run-{number}") for number in range(RUNS)]
    empty = tmp_path / "empty"
    empty.mkdir()
    wanted = [
        Drawing(run, [other for other in runs if other != run], tmp_path / run.name / "drawn") for run in [*runs, empty]
    ]
    drawings.draw(wanted)
    for each in wanted[:-1]:
        assert each.image.read_bytes().startswith(b"\x89PNG")
        assert each.packets.read_text().startswith('window.packetData["drawn"] = ')
    assert not wanted[-1].image.exists()
    assert not list(tmp_path.rglob("*.part"))
    wanted[0].image.write_bytes(b"kept")
    wanted[1].image.unlink()
    drawings.draw(wanted)
    assert wanted[0].image.read_bytes() == b"kept"
    assert wanted[1].image.exists()
