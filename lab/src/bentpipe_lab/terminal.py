"""Output for a terminal of any width, and commands that can be given as they are told."""

import shlex
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

BETWEEN = 3
"""Columns of a terminal between two of a table."""


def command(what: str, *where: Path) -> str:
    """A command of the lab as a shell takes it."""
    return " ".join(["bentpipe-lab", what, *(shlex.quote(str(each)) for each in where)])


def put(console: Console, table: Table) -> None:
    """Print a table; where its words do not fit beside each other, a paragraph for each line of it."""
    needed = sum(_widest(column) + BETWEEN for column in table.columns)
    if needed <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title, highlight=False)
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        named = (f"{column.header} {cell}" for column, cell in zip(table.columns, cells, strict=True))
        console.print(", ".join(named), highlight=False)


def _widest(column: Column) -> int:
    """Columns of a terminal that the longest piece takes which is not to be broken."""
    pieces = [str(column.header), *map(str, column.cells)]
    words = pieces if column.no_wrap else [word for piece in pieces for word in piece.split()]
    return max((cell_len(word) for word in words), default=0)
