"""A study as it is shown: tables and drawings with what they say."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `mark` is "within", "short" or nothing."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


@dataclass(frozen=True)
class Drawing:
    """An SVG drawing."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One study."""

    title: str
    source: str
    paragraphs: Sequence[str]
    """What was run and what came of it, a paragraph each."""
    tables: Sequence[Table] = field(default_factory=list)
    drawings: Sequence[Drawing] = field(default_factory=list)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number for a person; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def percent(value: float | None) -> str:
    """A relative difference for a person."""
    return "-" if value is None else f"{value * 100:+.1f} %"


def markdown(section: Section) -> str:
    """The section's words and tables as Markdown."""
    parts = [f"## {section.title}", f"Source: {section.source}", *section.paragraphs]
    for table in section.tables:
        rows = [table.head, ["---"] * len(table.head), *[[_plain(cell) for cell in row] for row in table.rows]]
        parts.append("\n".join([f"{table.caption}:", "", *[f"| {' | '.join(row)} |" for row in rows]]))
    return "\n\n".join(parts) + "\n"


def _plain(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text
