"""What a study says of itself in a campaign's report: words and tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `mark` is nothing, or words of "within", "short", and "cause" for a text that may be long."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


@dataclass(frozen=True)
class Section:
    """One study."""

    title: str
    paragraphs: Sequence[str]
    """What was run and what came of it, a paragraph each."""
    tables: Sequence[Table] = field(default_factory=list)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number for a person; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"
