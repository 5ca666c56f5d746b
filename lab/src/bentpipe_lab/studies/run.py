"""Published studies: their campaigns, one after the other, each with its report, and a page that leads to them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from rich.console import Console

from bentpipe_lab.campaign import commands
from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign import plan as plans
from bentpipe_lab.campaign.plan import REAL
from bentpipe_lab.net import host
from bentpipe_lab.registry import unknown
from bentpipe_lab.report import commands as reports
from bentpipe_lab.report.campaign import conditions

CAMPAIGNS = host.REPOSITORY / "campaigns"
PAGE = "index.html"
STUDIES: Mapping[str, Sequence[str]] = {
    "bujari": ("bujari", "bujari-tcp"),
    "endres": ("endres", "endres-window"),
    "qpep": ("qpep-loss", "qpep-ack", "qpep", "qpep-loss-systems", "qpep-pages", "qpep-iridium"),
    "kuhn": ("kuhn",),
    "codel": ("geo-codel",),
    "kosek": ("kosek",),
    "ka-sat": ("ka-sat",),
    "beyond": ("beyond",),
}
"""Each study with its campaigns."""


def studies(out: Path, only: Sequence[str], console: Console, *, quick: bool, virtual: bool) -> int:
    """Run the campaigns of all studies, or of those named; what was begun in `out` goes on. 0 when all were done.

    With `virtual`, campaigns that need real time are left out.
    """
    known = dict.fromkeys([*STUDIES, *(name for names in STUDIES.values() for name in names)])
    for name in only:
        if name not in known:
            raise unknown("study", name, known)
    for name in _chosen(only):
        file = CAMPAIGNS / f"{name}.toml"
        plan = plans.read(file, quick=quick)
        if virtual and REAL in plan.clocks:
            console.print(f"{name}: left out, it needs real time", highlight=False)
            continue
        directory = out / plan.name
        console.print(f"{name}: {directory}", highlight=False)
        code = _done(file, directory, console, quick=quick)
        _contents(out)
        if code != 0:
            return code
    console.print(f"{out / PAGE}", highlight=False)
    return 0


def controllers(out: Path, console: Console, *, quick: bool) -> int:
    """Run the campaign of the tunnel's controllers in real time, or go on with it, and report; 0 when it was done."""
    return _done(CAMPAIGNS / "controllers.toml", out, console, quick=quick)


def _done(file: Path, directory: Path, console: Console, *, quick: bool) -> int:
    """Begin a campaign or go on with it, and report what there is; 0 when it was done."""
    begun = (directory / directories.PLAN).exists()
    code = (
        commands.resume(directory, None, console)
        if begun
        else commands.run(file, directory, None, None, console, quick=quick)
    )
    reports.report(directory, console)
    return code


def _chosen(only: Sequence[str]) -> list[str]:
    return [name for study, names in STUDIES.items() for name in names if not only or study in only or name in only]


def _contents(out: Path) -> None:
    """A page with a link to each report."""
    found = []
    for directory in sorted(path.parent for path in out.glob(f"*/{directories.PLAN}")):
        page = directory / directories.REPORT / "index.html"
        if page.exists():
            campaign = directories.opened(directory)
            found.append(
                {
                    "title": directory.name,
                    "source": campaign.plan.source,
                    "page": page.relative_to(out),
                    "conditions": conditions(directories.provenance_of(directory)),
                    "records": campaign.store_url,
                }
            )
    environment = jinja2.Environment(loader=jinja2.PackageLoader("bentpipe_lab.report"), autoescape=True)
    (out / PAGE).write_text(environment.get_template("contents.html.j2").render(campaigns=found))
