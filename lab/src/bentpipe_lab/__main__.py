"""`bentpipe-lab`: the lab's commands."""

import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from bentpipe_lab.errors import LabError

WITHOUT_A_TERMINAL = 160
"""Columns of output that goes to a file."""


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WITHOUT_A_TERMINAL)


PATH = click.Path(path_type=Path)
CAMPAIGN = click.argument("campaign", type=PATH)
QUICK = click.option("--quick", is_flag=True, help="the plan's quick form: the same picture, wider intervals")
SCHEDULER = click.option("--scheduler", metavar="ADDRESS", help="a Dask scheduler whose workers do the runs")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure transports over satellite links, in virtual and in real time."""


@cli.command()
@click.argument("plan", type=PATH)
@QUICK
def plan(plan: Path, quick: bool) -> int:
    """Print the runs of PLAN and about how long they take; start nothing."""
    from bentpipe_lab.campaign import commands

    commands.show_plan(plan, _console(), quick=quick)
    return 0


@cli.command()
@click.argument("plan", type=PATH)
@click.option("--out", type=PATH, help="the campaign's directory; out/NAME by default")
@click.option("--store", metavar="URL", help="where its runs are kept: any place that fsspec reaches")
@SCHEDULER
@QUICK
def run(plan: Path, out: Path | None, store: str | None, scheduler: str | None, quick: bool) -> int:
    """Begin a campaign with PLAN and work on it."""
    from bentpipe_lab.campaign import commands

    return commands.run(plan, out, store, scheduler, _console(), quick=quick)


@cli.command()
@CAMPAIGN
def status(campaign: Path) -> int:
    """How far CAMPAIGN is, and how its runs ended."""
    from bentpipe_lab.campaign import commands

    return commands.status(campaign, _console())


@cli.command()
@CAMPAIGN
def pause(campaign: Path) -> int:
    """Stop CAMPAIGN when the runs in flight are done."""
    from bentpipe_lab.campaign import commands

    return commands.pause(campaign, _console())


@cli.command()
@CAMPAIGN
@SCHEDULER
def resume(campaign: Path, scheduler: str | None) -> int:
    """Go on with CAMPAIGN, however it was stopped."""
    from bentpipe_lab.campaign import commands

    return commands.resume(campaign, scheduler, _console())


@cli.command()
@CAMPAIGN
@click.option("--verdict", "verdicts", multiple=True, required=True, help="runs that ended so; may be given again")
@SCHEDULER
def retry(campaign: Path, verdicts: tuple[str, ...], scheduler: str | None) -> int:
    """Try runs of CAMPAIGN again, by verdict."""
    from bentpipe_lab.campaign import commands

    return commands.retry(campaign, verdicts, scheduler, _console())


@cli.command()
@CAMPAIGN
def report(campaign: Path) -> int:
    """Write tables, figures and a page of CAMPAIGN, from its runs so far."""
    from bentpipe_lab.report import commands

    return commands.report(campaign, _console())


@cli.command()
@CAMPAIGN
def redraw(campaign: Path) -> int:
    """Draw figures and page of CAMPAIGN again, from its tables; nothing is run."""
    from bentpipe_lab.report import commands

    return commands.redraw(campaign, _console())


@cli.command()
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
def compare(first: Path, second: Path) -> int:
    """Campaign SECOND beside campaign FIRST, point by point."""
    from bentpipe_lab.report import commands

    return commands.compare(first, second, _console())


@cli.command()
@CAMPAIGN
@click.option(
    "--format",
    "form",
    default="csv",
    show_default=True,
    help="csv, parquet, duckdb, or results: one small table of points",
)
@click.option("--out", type=PATH, help="a directory; CAMPAIGN/export by default")
def export(campaign: Path, form: str, out: Path | None) -> int:
    """Write runs and samples of CAMPAIGN for other programs."""
    from bentpipe_lab.report import commands

    return commands.export(campaign, form, out, _console())


@cli.group()
def programs() -> None:
    """Programs that systems and workloads drive."""


@programs.command("list")
def list_programs() -> int:
    """Which there are, where they are, and how a missing one is installed."""
    from bentpipe_lab.campaign import programs

    return programs.show(_console())


@programs.command("install")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def install_programs(names: tuple[str, ...]) -> int:
    """Install programs by name, or what a system or workload of that name needs; without a name, all."""
    from bentpipe_lab.campaign import programs

    return programs.install(names, _console())


@cli.command()
@click.argument("what", metavar="[PLAN|CAMPAIGN]", type=PATH, required=False)
@click.option("--out", type=PATH, help="the campaign's directory; out/NAME by default")
@click.option("--quick", is_flag=True, help="4 clients x 4 servers x 3 cases once: to try it, not to believe it")
@click.option("--cell", metavar="POINT", help="this point of PLAN only")
@click.option("--site-only", is_flag=True, help="run nothing: write the site of CAMPAIGN from what there is")
@SCHEDULER
def matrix(
    what: Path | None, out: Path | None, quick: bool, cell: str | None, site_only: bool, scheduler: str | None
) -> int:
    """Every QUIC client against every server, as PLAN says; or go on with CAMPAIGN; then a site of the results."""
    from bentpipe_lab.matrix import commands

    return commands.matrix(what, out, scheduler, _console(), quick=quick, cell=cell, site_only=site_only)


@cli.group()
def stacks() -> None:
    """Other people's QUIC implementations: install them, list them."""


CACHE = click.option(
    "--cache", type=PATH, help="where they are installed; $BENTPIPE_STACKS or ~/.cache/bentpipe/stacks by default"
)


@stacks.command(name="install")
@click.argument("names", nargs=-1)
@CACHE
def stacks_install(names: tuple[str, ...], cache: Path | None) -> int:
    """Install implementations NAMES, or all."""
    from bentpipe_lab.stacks import commands

    return commands.install(names, cache, _console())


@stacks.command(name="list")
@CACHE
def stacks_list(cache: Path | None) -> int:
    """Which there are, in which versions, with which knobs, and why something is not installed."""
    from bentpipe_lab.stacks import commands

    return commands.show(cache, _console())


@cli.command()
def calibrate() -> int:
    """How many paths this machine can measure side by side in real time."""
    from bentpipe_lab.campaign import calibrate as calibration

    return calibration.calibrate(_console())


@cli.command()
@click.option("--out", type=PATH, default=Path("out/demo"), show_default=True)
@click.option("--quick", is_flag=True, help="one run of each workload: to try it, not to believe it")
@click.option("--redraw", is_flag=True, help="run nothing: write the report anew from the records in OUT")
def demo(out: Path, quick: bool, redraw: bool) -> int:
    """Direct TCP against bentpipe on GEO and LEO, with a report."""
    from bentpipe_lab.studies import demo as study

    if redraw:
        return study.redraw(out, _console())
    return study.demo(out, study.counts_of_runs(quick=quick), _console())


@cli.command()
@click.option("--out", type=PATH, default=Path("out/bench"), show_default=True)
def bench(out: Path) -> int:
    """Speed and memory of tunnel and emulator."""
    from bentpipe_lab.bench import tunnel

    return tunnel.bench(out, _console())


@cli.command()
@click.option("--out", type=PATH, default=Path("out/controllers"), show_default=True)
@QUICK
def controllers(out: Path, quick: bool) -> int:
    """The tunnel's congestion controllers beside each other, or on with what was begun in OUT."""
    from bentpipe_lab.studies import run as study

    return study.controllers(out, _console(), quick=quick)


@cli.command()
@click.option("--out", type=PATH, default=Path("out/studies"), show_default=True)
@click.option("--only", multiple=True, metavar="STUDY", help="a study or a campaign of it; may be given again")
@click.option("--virtual", is_flag=True, help="leave out campaigns that need real time")
@QUICK
def studies(out: Path, only: tuple[str, ...], virtual: bool, quick: bool) -> int:
    """Published studies: run their campaigns, with a report of each."""
    from bentpipe_lab.studies import run as study

    return study.studies(out, only, _console(), quick=quick, virtual=virtual)


@cli.command()
def clean() -> int:
    """Remove what runs that died left behind."""
    from bentpipe_lab.campaign import leftovers

    _console().print(*(leftovers.clean() or ["nothing was left behind"]))
    return 0


def main() -> int:
    """Run the command that the command line names."""
    try:
        return _run()
    except KeyboardInterrupt:
        return 130
    finally:
        # All is done or cleaned up: there is nothing left for another Ctrl-C to break off.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run() -> int:
    console = _console()
    try:
        code = cli.main(prog_name="bentpipe-lab", standalone_mode=False)
    except LabError as error:
        console.print("[bold red]cannot go on:[/]", end=" ")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        console.print("[bold red]cannot go on:[/]", end=" ")
        console.print(f"{error.filename}: {error.strerror}", markup=False, highlight=False, soft_wrap=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        console.print("interrupted; cleaned up")
        return 130
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
