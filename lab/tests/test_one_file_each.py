"""A toy workload and a toy system, a file each beside the others: planned, run and reported, nothing else edited."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import bentpipe_lab
from bentpipe_lab.records import tables

WORKLOAD = '''\
"""A toy of a workload."""

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Transfer, Workload


class Toy(Workload):
    """A postcard."""

    name = "toy postcard"
    measures = "time until the toy is read"
    transfer = Transfer(300_000)

    def run(self, path: Topology) -> Outcome:
        """In virtual time only."""
        raise NotImplementedError

    def bound_s(self, link: Link) -> float:
        """As a download's."""
        return bounds.download_s(link, 300_000)
'''
SYSTEM = '''\
"""A toy of a system."""

from bentpipe_lab.systems.quic import Quic


class Toy(Quic):
    """QUIC by another name."""

    name = "toy tunnel"
    label = "a toy of a tunnel"
    colour = "#123456"
    pale = "#abcdef"
'''
PLAN = """\
name = "toys"
repetitions = 5
sample_every = "100 ms"
[axes]
scenario = "geo"
system = ["quic", "toy tunnel"]
workload = ["first byte", "toy postcard"]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The lab with a file more among its workloads and among its systems."""
    ours = Path(bentpipe_lab.__file__).parent
    copy = tmp_path / "site" / ours.name
    for folder, text in (("workloads", WORKLOAD), ("systems", SYSTEM)):
        (copy / folder).mkdir(parents=True)
        for file in (ours / folder).iterdir():
            if file.name != "__pycache__":
                (copy / folder / file.name).symlink_to(file)
        (copy / folder / "toy.py").write_text(text)
    for file in ours.iterdir():
        if file.name not in ("workloads", "systems", "__pycache__"):
            (copy / file.name).symlink_to(file)
    return copy.parent


def lab(package: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bentpipe_lab", *map(str, words)], capture_output=True, text=True, check=False,
        cwd=package, env={**os.environ, "PYTHONPATH": str(package)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.long
def test_a_file_each_is_all_that_a_workload_and_a_system_need(package: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "toys.toml", tmp_path / "out"
    plan.write_text(PLAN)
    said = lab(package, "plan", plan)
    assert "toy tunnel" in said
    assert "toy postcard" in said
    assert "20 of 20 runs ended well" in lab(package, "run", plan, "--out", out)
    page = Path(lab(package, "report", out))
    runs = pl.read_parquet(out / tables.RUNS_TABLE)
    assert set(runs["axis.system"]) == {"quic", "toy tunnel"}
    assert set(runs["axis.workload"]) == {"first byte", "toy postcard"}
    written = page.read_text()
    for told in ("a toy of a tunnel", "time until the toy is read", "Comparisons"):
        assert told in written
    for figure in ("medians-1", "distributions-1", "over-time-2"):
        drawing = (page.parent / "figures" / f"{figure}.svg").read_text()
        assert "toy tunnel" in drawing, figure
        assert "#123456" in drawing, figure
        assert "toy postcard" in drawing, figure
    lab(package, "export", out, "--format", "results", "--out", tmp_path)
    assert "toy tunnel,toy postcard,seconds,5,5" in (tmp_path / "toys.csv").read_text()
