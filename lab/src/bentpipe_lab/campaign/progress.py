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
BELIEVED_S = 10.0
ALMOST = 0.9
"""Of a unit that is in flight, however long it has been."""
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
        self._flying: dict[str, tuple[float, float, float]] = {}
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
        """So many more runs, of which it is believed that they take so long on the clock."""
        self._open = runs
        self._estimate_s = estimate_s
        self._landed_s = 0.0
        self._began = time.monotonic()

    def begun(self, unit: str, share_s: float, takes_s: float) -> None:
        """A unit was begun: its share of all that is expected, and how long it is believed to take by itself."""
        self._flying[unit] = (share_s, takes_s, time.monotonic())

    def landed(self, unit: str) -> None:
        """A unit is done."""
        share_s, _, _ = self._flying.pop(unit, (0.0, 0.0, 0.0))
        self._landed_s += share_s

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
        """How long it will still take, seconds; None before there is anything to tell it by.

        What was believed counts as much as `BELIEVED_S` of work that took so long: a first unit tells little.
        """
        now = time.monotonic()
        done_s = self._landed_s + sum(
            share_s * min(ALMOST, (now - began) / takes_s) for share_s, takes_s, began in self._flying.values()
        )
        if done_s <= 0 or self._estimate_s <= 0:
            return None
        slower = (now - self._began + BELIEVED_S) / (done_s + BELIEVED_S)
        return max(0.0, (self._estimate_s - done_s) * slower)

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


def spans(low_s: float, high_s: float) -> str:
    """Two lengths of time for a person, the unit told once where both have it."""
    low, high = span(low_s), span(high_s)
    if low == high:
        return f"about {high}"
    return f"{low.split()[0] if low.split()[1] == high.split()[1] else low} to {high}"
