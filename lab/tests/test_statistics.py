"""Statistics against worked examples and properties."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bentpipe_lab.analysis.statistics import compare, distribution, holm, median_interval

times = st.lists(st.floats(0.1, 100), min_size=2, max_size=30)


@settings(deadline=None)  # scipy is loaded in the first case
@given(times)
def test_an_interval_holds_its_median_and_lies_within_the_values(values: list[float]) -> None:
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert median_interval(values) == found, "the same values give the same interval"


def test_more_runs_give_a_narrower_interval() -> None:
    few = [1.0, 1.1, 1.2, 1.3, 1.4]
    assert median_interval(few * 8).width_of_median < median_interval(few).width_of_median


@pytest.mark.parametrize("few", [[1.0], [1.0, 1.0], [1.0, 1.001, 1.002, 1.003]])
def test_few_values_say_nothing_of_their_interval(few: list[float]) -> None:
    """The range of four covers the median in 7 of 8 cases, not in 95 %."""
    assert math.isinf(median_interval(few).width_of_median)


def test_runs_that_were_cut_off_count_as_not_done() -> None:
    found = distribution([1.0, 2.0, 3.0], [10.0])
    assert found.times == [1.0, 2.0, 3.0]
    assert found.shares == pytest.approx([0.25, 0.5, 0.75])
    assert distribution([1.0, 2.0], []).shares == pytest.approx([0.5, 1.0])
    assert distribution([], [5.0]).times == []


def test_a_run_that_was_cut_off_early_takes_its_weight_to_the_later_ones() -> None:
    """Kaplan and Meier: 1 of 4, then 1 of the 2 that are left of three quarters, then all."""
    assert distribution([1.0, 3.0, 4.0], [2.0]).shares == pytest.approx([0.25, 0.625, 1.0])


@settings(deadline=None)
@given(times, times)
def test_a_comparison_turned_round_has_the_opposite_effect(first: list[float], second: list[float]) -> None:
    one, other = compare(first, second), compare(second, first)
    assert one.effect == pytest.approx(-other.effect)
    assert one.mann_whitney_p == pytest.approx(other.mann_whitney_p)
    assert one.ratio == pytest.approx(1 / other.ratio)


def test_samples_without_overlap_have_the_whole_effect() -> None:
    found = compare([1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3])
    assert found.effect == 1.0
    assert found.mann_whitney_p == pytest.approx(2 / 70), "2 of the 70 orders of 4 and 4 are as far apart"
    assert found.welch_p is not None
    assert found.welch_p < 0.001
    assert compare([1.0], [2.0]).mann_whitney_p is None
    assert compare([1.0, 1.0], [1.0, 1.0]).welch_p is None


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, None, 0.005]) == pytest.approx([0.03, 0.06, 0.06, None, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_who_failed_was_slower_than_all_who_did_not() -> None:
    """Three of ten that ended, sooner than all of the others, are no faster system."""
    few, all_ten = [1.0, 1.1, 1.2], [2.0 + place / 10 for place in range(10)]
    survivors = compare(all_ten, few)
    assert survivors.effect == -1
    told = compare(all_ten, few, failed=(0, 7))
    assert told.effect == pytest.approx(0.4)
    assert told.ratio == survivors.ratio
    assert told.n == (10, 3)
    more = compare(all_ten, [30.0, 31.0, 32.0], failed=(0, 7), better="more")
    assert more.effect == pytest.approx(-0.4)
