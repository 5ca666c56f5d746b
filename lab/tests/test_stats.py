import pytest

from bentpipe_lab.analysis import stats
from bentpipe_lab.records.verdict import Verdict
from samples import sample


def test_a_row_is_the_median_of_the_good_runs_and_tells_of_all() -> None:
    samples = [sample(1.0), sample(3.0), sample(2.0), sample(None, Verdict.STALLED)]
    row = stats.row(samples, 1.6)
    assert row.as_record() == {
        "scenario": "geo",
        "system": "bentpipe",
        "workload": "first byte",
        "n_ok": 3,
        "n_total": 4,
        "median_s": 2.0,
        "p95_s": 2.9,
        "bound_s": 1.6,
        "ratio_to_bound": 1.25,
        "certificate_valid": True,
    }


def test_no_good_run_has_no_median() -> None:
    row = stats.row([sample(None, Verdict.REFUSED)], 1.0)
    assert (row.n_ok, row.n_total, row.median_s, row.p95_s, row.ratio_to_bound) == (0, 1, None, None, None)


def test_a_time_of_a_run_that_failed_does_not_count() -> None:
    assert stats.row([sample(9.0, Verdict.RESET), sample(1.0)], 1.0).median_s == 1.0


def test_a_row_is_of_one_kind() -> None:
    with pytest.raises(ValueError, match="too many"):
        stats.row([sample(1.0), sample(1.0, system="direct")], 1.0)


def test_runs_of_a_late_emulator_count_only_when_there_are_no_others() -> None:
    late = sample(9.0, Verdict.EMULATOR_LATE)
    row = stats.row([late, sample(1.0), sample(3.0), late], 1.0)
    assert (row.n_ok, row.n_total, row.median_s, row.certificate_valid) == (2, 2, 2.0, True)
    row = stats.row([late, late], 1.0)
    assert (row.n_ok, row.n_total, row.median_s, row.certificate_valid) == (2, 2, 9.0, False)
