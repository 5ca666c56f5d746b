"""The figures of the publications: data files of this package, each with its source on top."""

import csv
from collections.abc import Mapping, Sequence
from importlib import resources


def table(name: str) -> Sequence[Mapping[str, str]]:
    """The rows of a data file."""
    text = resources.files("bentpipe_lab.studies").joinpath("data", f"{name}.csv").read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def source(name: str) -> str:
    """Where they are from."""
    text = resources.files("bentpipe_lab.studies").joinpath("data", f"{name}.csv").read_text()
    return " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
