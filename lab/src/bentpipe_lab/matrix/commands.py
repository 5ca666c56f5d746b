"""What `bentpipe-lab matrix` does: run a plan of cells, or go on with one, and write its site."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from bentpipe_lab.campaign import commands
from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign.plan import Plan, parse, read
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.errors import PlanError
from bentpipe_lab.matrix import site
from bentpipe_lab.net import host
from bentpipe_lab.registry import unknown

QUICK = host.REPOSITORY / "campaigns" / "matrix-quick.toml"


def matrix(
    what: Path | None, out: Path | None, scheduler: str | None, console: Console, *,
    quick: bool = False, cell: str | None = None, site_only: bool = False,
) -> int:  # fmt: skip
    """Begin the plan, or go on with the campaign, that `what` names, then write its site."""
    if quick == (what is not None):
        raise PlanError("give a plan, the directory of a matrix that was begun, or --quick")
    what = what or QUICK
    if what.is_dir():
        directory, code = what, 0 if site_only else commands.resume(what, scheduler, console)
    else:
        plan = read(what)
        directory = out or Path("out", plan.name)
        if cell is not None:
            directory.mkdir(parents=True, exist_ok=True)
            what = directory / "cell.toml"
            what.write_text(only(plan, cell))
        if (directory / directories.PLAN).exists():
            code = commands.resume(directory, scheduler, console)
        else:
            code = commands.run(what, directory, None, scheduler, console)
    page = site.write(directories.opened(directory))
    console.print(f"{page}", highlight=False, soft_wrap=True)
    return code


def only(plan: Plan, cell: str) -> str:
    """The text of a plan that has one point of another."""
    points = {point.id: point for point in expand(plan).points}
    if cell not in points:
        raise unknown("cell", cell, points)
    axes: dict[str, Any] = dict(points[cell].axes)
    table: dict[str, Any] = {
        "name": "cell", "source": f"{cell} of {plan.name}", "clock": points[cell].clock,
        "repetitions": plan.repetitions.least, "late_repeats": plan.late_repeats, "axes": axes,
    }  # fmt: skip
    if plan.hosts is not None:
        table |= {"parallel": plan.parallel, "hosts": plan.hosts.as_table()}
    if (name := axes.pop("case", None)) is not None:
        case = next(each for each in plan.cases if each.name == name)
        table["case"] = [{"name": name, **case.axes}]
        for axis in case.axes:
            axes.pop(axis, None)
    text = tomli_w.dumps(_nested(table))
    assert [point.id for point in expand(parse(text, plan.directory)).points] == [cell]
    return text


def _nested(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
