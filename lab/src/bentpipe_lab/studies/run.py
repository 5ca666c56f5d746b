"""Runs the campaigns and writes the report."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from rich.console import Console

from bentpipe_lab.errors import LabError, ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.studies import bujari, codel, endres, kuhn, qpep
from bentpipe_lab.studies.section import Section, markdown

CAMPAIGNS = host.REPOSITORY / "campaigns"
REPORT = "report.html"
TABLES = "tables.md"

STUDIES: Mapping[str, tuple[Sequence[str], Callable[..., Section]]] = {
    "bujari": (("bujari",), bujari.section),
    "endres": (("endres", "endres-window"), endres.section),
    "qpep": (("qpep-loss", "qpep-ack"), qpep.section),
    "kuhn": (("kuhn",), kuhn.section),
    "codel": (("geo-codel",), codel.section),
}
"""Each study with its campaigns, in the order of its section's parameters."""


def studies(out: Path, only: Sequence[str], console: Console) -> int:
    """Run the studies' campaigns, all of them or those named, and write the report."""
    unknown = [name for name in only if name not in STUDIES]
    if unknown:
        raise LabError(f"there is no study {unknown[0]!r}; there are {', '.join(STUDIES)}")
    sections = []
    for name in only or STUDIES:
        campaigns, section = STUDIES[name]
        for campaign in campaigns:
            console.print(f"{campaign}", highlight=False)
            _run(CAMPAIGNS / f"{campaign}.toml", out / campaign)
        sections.append(section(*[out / campaign for campaign in campaigns]))
    write(out, sections)
    console.print(f"{out / REPORT} and {out / TABLES}", highlight=False)
    return 0


def write(out: Path, sections: Sequence[Section]) -> None:
    """Write the report and its tables as Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe_lab.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("studies.html.j2").render(
        sections=sections, conditions=datetime.now(UTC).strftime("Written on %Y-%m-%d at %H:%M UTC.")
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / REPORT).write_text(page)
    (out / TABLES).write_text("\n".join(markdown(section) for section in sections))


def _run(plan: Path, out: Path) -> None:
    """Standard output is the same table that the summary holds; progress goes to the terminal."""
    done = subprocess.run([host.binary(), "sim", plan, "--out", out], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise ProgramError(f"bentpipe sim {plan} ended with {done.returncode}; what it measured is in {out}")
