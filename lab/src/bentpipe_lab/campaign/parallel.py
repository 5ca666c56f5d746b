"""Execution of a plan's tasks, a few at a time, each as a program of its own, with a progress display."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.net import interrupt
from bentpipe_lab.records.verdict import Verdict

PIPE_LIMIT = 1 << 20


def run_tasks(tasks: Sequence[Task], side_by_side: int, console: Console) -> list[str]:
    """Run the tasks; return, in words, what kept any of them from its end.

    Ctrl-C and SIGTERM end every task, wait until each has cleaned up, and come out as KeyboardInterrupt.
    """
    with _Display(tasks, console) as display:
        return asyncio.run(_run_all(tasks, side_by_side, display))


async def _run_all(tasks: Sequence[Task], side_by_side: int, display: "_Display") -> list[str]:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # Once: while the tasks clean up, a second Ctrl-C changes nothing.
        loop.add_signal_handler(number, _cancel_once, me)
    slots = asyncio.Semaphore(side_by_side)
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_one(task, slots, display)) for task in tasks]
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    return [problem for each in running if (problem := each.result())]


def _cancel_once(task: "asyncio.Task[Any]") -> None:
    if not task.cancelling():
        task.cancel()


async def _one(task: Task, slots: asyncio.Semaphore, display: "_Display") -> str | None:
    async with slots:
        task.directory.mkdir(parents=True, exist_ok=True)
        with (task.directory / "run.log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *task.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=PIPE_LIMIT,
            )
        problem: str | None = None
        try:
            assert child.stdout is not None
            display.start(task)
            async for line in child.stdout:
                step = json.loads(line)
                display.show(task, step)
                if step["step"] == "failed":
                    problem = f"{task.name}: {step['detail']}"
            code = await child.wait()
        finally:
            await asyncio.shield(_ended(child))
        display.finish(task, problem)
        if code != 0 and problem is None:
            problem = f"{task.name} ended with {code}; see {task.directory / 'run.log'}"
        return problem


async def _ended(child: asyncio.subprocess.Process) -> None:
    """As `interrupt.end`, without holding up the others."""
    while child.returncode is None:
        child.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), interrupt.ASK_AGAIN_S)


class _Display:
    """A line per task: what it does now and how far it is. Without a terminal, a line per failure only."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.fields[name]:<13}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self.bars: dict[str, TaskID] = {
            task.name: self.progress.add_task("waiting", total=len(task.rounds()), start=False, name=task.name)
            for task in tasks
        }

    def __enter__(self) -> "_Display":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def start(self, task: Task) -> None:
        self.progress.start_task(self.bars[task.name])

    def show(self, task: Task, step: Mapping[str, Any]) -> None:
        bar = self.bars[task.name]
        if not self.console.is_terminal and step["step"] not in ("measuring", "measured"):
            self.console.print(f"{task.name}: {step['step']}", highlight=False)
        if step["step"] == "measured":
            self.progress.advance(bar)
        if step.get("verdict", Verdict.OK) != Verdict.OK:
            what = step.get("workload", step["step"])
            self.progress.console.print(
                f"[yellow]{task.name}: {what}: {step['verdict']}[/] {escape(step['detail'])}", highlight=False
            )
        self.progress.update(bar, description=step.get("workload", step["step"]))

    def finish(self, task: Task, problem: str | None) -> None:
        bar = self.bars[task.name]
        self.progress.update(bar, description="[red]failed" if problem else "done")
        self.progress.stop_task(bar)
