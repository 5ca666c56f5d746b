"""Progress of a campaign: what is left, by what the work so far has taken."""

import io

import pytest
from rich.console import Console

from bentpipe_lab.campaign import progress
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.records.verdict import Verdict


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(progress, "time", moved)
    return moved


def test_what_is_left_follows_what_the_work_takes_and_not_what_was_believed(clock: Clock) -> None:
    shown = Progress(Console(file=io.StringIO()))
    shown.begin(0)
    shown.expect(10, 100.0)
    assert shown.left_s() is None, "nothing is known yet"
    shown.begun("first", 20.0, 40.0)
    assert shown.left_s() is None
    clock.now += 20
    assert shown.left_s() == pytest.approx(90 * 30 / 20), "half of the first unit, at half the speed"
    clock.now += 30
    shown.landed("first")
    assert shown.left_s() == pytest.approx(80 * 60 / 30)
    shown.begun("second", 70.0, 140.0)
    clock.now += 1000
    assert shown.left_s() == pytest.approx(17 * 1060 / 93), "never done before it is done"
    shown.landed("second")
    assert shown.left_s() == pytest.approx(10 * 1060 / 100)


def test_without_a_terminal_a_line_comes_now_and_then(clock: Clock) -> None:
    out = io.StringIO()
    shown = Progress(Console(file=out, width=200))
    with shown:
        shown.begin(3)
        shown.expect(4, 40.0)
        for number in range(4):
            clock.now += 6
            shown.note(Run("point", number + 1, 1), Verdict.OK if number else Verdict.STALLED, "at byte 5")
            shown.begun(str(number), 10.0, 10.0)
            shown.landed(str(number))
            shown.show()
    lines = out.getvalue().splitlines()
    assert lines == [
        "3 runs were done before",
        "point/00001: stalled at byte 5",
        "5 of 7 runs; 1 stalled; about 15 s left",
        "7 of 7 runs; 1 stalled; about 0 s left",
    ]


def test_late_attempts_are_no_progress(clock: Clock) -> None:
    del clock
    shown = Progress(Console(file=io.StringIO()))
    shown.begin(0)
    shown.expect(2, 20.0)
    shown.note(Run("point", 1, 1), Verdict.EMULATOR_LATE, "")
    assert (shown._done, shown._open) == (0, 2)
