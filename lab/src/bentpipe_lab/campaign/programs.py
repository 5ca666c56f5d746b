"""What `bentpipe-lab programs` does: which programs systems and workloads need, and their installation."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from bentpipe_lab.errors import LabError, UnknownNameError
from bentpipe_lab.programs import Program
from bentpipe_lab.registry import unknown
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.workloads import WORKLOADS


def needed() -> Mapping[Program, Sequence[str]]:
    """Every program, with the systems and workloads that need it."""
    found: dict[Program, list[str]] = {}
    for part in (*SYSTEMS, *WORKLOADS):
        for program in part.programs:
            found.setdefault(program, []).append(part.name)
    return found


def show(console: Console) -> int:
    """Print every program: where it is, or how it is installed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("program", "version", "where, or how it is installed", "needed by"):
        table.add_column(name, overflow="fold")
    for program, users in needed().items():
        path = program.path()
        where = str(path) if path else f"[yellow]missing:[/] {program.remedy()}"
        table.add_row(program.name, program.version(), where, ", ".join(users))
    console.print(table)
    return 0


def install(names: Sequence[str], console: Console) -> int:
    """Install programs, by their own names or by those of what needs them; all that are missing without a name."""
    problems = 0
    for program in _chosen(names):
        path = program.path()
        if path is None:
            console.print(f"{program.name}: {program.version()}", highlight=False)
            try:
                program.install()
            except LabError as error:
                problems += 1
                console.print(f"[bold red]{program.name} is not installed:[/]", end=" ")
                console.print(str(error), markup=False, highlight=False, soft_wrap=True)
                continue
            path = program.path()
        console.print(f"{program.name}: {path or 'installed, but not found'}", highlight=False, soft_wrap=True)
    return 1 if problems else 0


def _chosen(names: Sequence[str]) -> list[Program]:
    programs = needed()
    known = {name: None for program, users in programs.items() for name in (program.name, *users)}
    for name in names:
        if name not in known:
            raise UnknownNameError(str(unknown("program", name, known)))
    return [
        program
        for program, users in programs.items()
        if not names or program.name in names or any(user in names for user in users)
    ]
