from dataclasses import replace

import pytest

from bentpipe_lab.analysis import budgets, stats
from bentpipe_lab.analysis.budgets import Budget
from bentpipe_lab.analysis.stats import Row
from samples import sample

AGAINST_BOUND = Budget("geo", "first byte", "bound", 1.05, "a test")
AGAINST_DIRECT = Budget("geo", "first byte", "baseline", 0.85, "a test")


def row(seconds: float, system: str = "bentpipe") -> Row:
    return stats.row([sample(seconds, system=system)], 1.0)


@pytest.mark.parametrize(("seconds", "verdict"), [(1.05, "within"), (1.06, "missed")])
def test_against_the_bound(seconds: float, verdict: str) -> None:
    (finding,) = budgets.judge([row(seconds)], [AGAINST_BOUND])
    assert (finding.ratio, finding.verdict) == (seconds, verdict)


@pytest.mark.parametrize(("seconds", "verdict"), [(1.7, "within"), (1.72, "missed")])
def test_against_direct(seconds: float, verdict: str) -> None:
    (finding,) = budgets.judge([row(seconds), row(2.0, "direct")], [AGAINST_DIRECT])
    assert finding.verdict == verdict


def test_nothing_to_compare_with() -> None:
    (finding,) = budgets.judge([row(1.0)], [AGAINST_DIRECT])
    assert finding.verdict == "not measured"


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(1.0, "within, but emulator late"), (2.0, "missed, but emulator late")]
)
def test_a_late_emulator_proves_nothing_on_either_side(seconds: float, verdict: str) -> None:
    late = replace(row(2.0, "direct"), certificate_valid=False)
    findings = budgets.judge([row(seconds), late], [AGAINST_DIRECT])
    assert [finding.verdict for finding in findings] == [verdict]
    assert budgets.conclusion(findings) == f"0 of 1 limits hold; 1 {verdict}."


def test_a_median_over_survivors_proves_nothing() -> None:
    (finding,) = budgets.judge([replace(row(1.0), n_total=2)], [AGAINST_BOUND])
    assert finding.verdict == "runs failed"


def test_every_budget_says_where_it_comes_from() -> None:
    assert all(budget.source for budget in budgets.BUDGETS)
