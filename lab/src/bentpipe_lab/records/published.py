"""The figures of the publications: data files of this package, each with its source on top."""

import csv
from collections.abc import Mapping, Sequence
from importlib import resources

METRIC, VALUE, RUNS, SPREAD = "metric", "value", "n", "sd"
"""Columns of a file whose figures stand beside points of a campaign; its other columns are axes of a plan; a
spread is a standard deviation."""


def names() -> list[str]:
    """The publications."""
    files = resources.files("bentpipe_lab.records").joinpath("data").iterdir()
    return sorted(each.name.removesuffix(".csv") for each in files if each.name.endswith(".csv"))


def figures(name: str) -> Sequence[Mapping[str, str]]:
    """The rows that stand beside single points of a campaign; none where a file has other figures only."""
    rows = table(name)
    return rows if METRIC in rows[0] else []


def table(name: str) -> Sequence[Mapping[str, str]]:
    """The rows of a data file."""
    return list(csv.DictReader(line for line in _text(name).splitlines() if not line.startswith("#")))


def source(name: str) -> str:
    """Where they are from."""
    return " ".join(line.removeprefix("#").strip() for line in _text(name).splitlines() if line.startswith("#"))


def _text(name: str) -> str:
    return resources.files("bentpipe_lab.records").joinpath("data", f"{name}.csv").read_text()
