"""Progress of a campaign for a person: with a terminal a bar, without one a line now and then."""

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.records.verdict import Verdict

LINE_S = 10.0
SHOWN = 20
"""Runs that did not end well which are shown one by one; further ones are counted."""


class Progress:
    """How far a campaign is, and how long it will still take, by what the units so far took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.verdicts: Counter[Verdict] = Counter()
        self._bar = Bar(
            TextColumn("{task.description:<10}"), BarColumn(bar_width=32), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._task: TaskID = self._bar.add_task("runs", total=None, left="")
        self._done = 0
        self._open = 0
        self._estimate_s = 0.0
        self._landed_s = 0.0
        self._began = self._said = time.monotonic()
        self._waiting = False

    def __enter__(self) -> Self:
        """Begin to show it."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the display as it is at the end."""
        self.show()
        self._bar.stop()

    def begin(self, done: int) -> None:
        """So many runs were done before."""
        self._done = done
        self._began = time.monotonic()
        if done:
            self.console.print(f"{done} runs were done before", highlight=False)

    def expect(self, runs: int, estimate_s: float) -> None:
        """So many more runs, of which it is believed that they take so long."""
        self._open = runs
        self._estimate_s = estimate_s
        self._landed_s = 0.0
        self._began = time.monotonic()

    def landed(self, estimate_s: float) -> None:
        """A unit is done that was believed to take so long."""
        self._landed_s += estimate_s

    def note(self, run: Run, verdict: Verdict, detail: str) -> None:
        """A run is done."""
        self.verdicts[verdict] += 1
        if verdict is not Verdict.EMULATOR_LATE:
            self._done += 1
            self._open = max(0, self._open - 1)
        bad = sum(count for each, count in self.verdicts.items() if each is not Verdict.OK)
        if verdict is not Verdict.OK and bad <= SHOWN:
            first = detail.partition("\n")[0]
            self._bar.console.print(f"[yellow]{run.directory}: {verdict}[/] {escape(first)}", highlight=False)

    def waiting(self, waits: bool) -> None:
        """Nothing is begun now: the plan has a pause window."""
        if waits and not self._waiting:
            self.console.print("waiting: the plan has a pause window now", highlight=False)
        self._waiting = waits

    def left_s(self) -> float | None:
        """How long it will still take, seconds; None before there is anything to tell it by."""
        spent = time.monotonic() - self._began
        if self._landed_s <= 0 or self._estimate_s <= 0:
            return None
        return max(0.0, spent * (self._estimate_s - self._landed_s) / self._landed_s)

    def show(self) -> None:
        """Bring the display up to date."""
        left = self.left_s()
        text = "" if left is None else f"about {span(left)} left"
        self._bar.update(self._task, completed=self._done, total=self._done + self._open, left=text)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._said >= LINE_S:
            self._said = now
            bad = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items() if verdict != Verdict.OK)
            parts = [f"{self._done} of {self._done + self._open} runs", bad, text]
            self.console.print("; ".join(part for part in parts if part), highlight=False)


def span(seconds: float) -> str:
    """A length of time for a person."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
