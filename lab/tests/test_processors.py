"""How processors are divided between emulators and the programs that are measured."""

import os

import pytest

from bentpipe_lab.net.processors import divide, kept_from_emulators


@pytest.mark.parametrize(
    ("allowed", "run", "expected"),
    [
        ({0, 1}, 7, (0, {1})),
        ({2, 3, 5}, 8, (2, {3, 5})),
        (set(range(8)), 0, (0, {2, 3, 4, 5, 6, 7})),
        (set(range(8)), 1, (1, {2, 3, 4, 5, 6, 7})),
    ],
)
def test_emulators_have_one_processor_of_four_and_at_least_one(
    allowed: set[int], run: int, expected: tuple[int, set[int]]
) -> None:
    assert divide(allowed, run) == expected


def test_one_processor_is_not_divided_and_few_are_not_for_a_path_that_is_alone() -> None:
    assert divide({3}, 0) is None
    assert divide({0, 1}, 0, alone=True) is None
    assert divide({0, 1, 2, 3}, 0, alone=True) == (0, {1, 2, 3})


def test_this_process_is_kept_from_them_and_let_back() -> None:
    before = os.sched_getaffinity(0)
    with kept_from_emulators() as processor:
        assert processor is None or os.sched_getaffinity(0) < before
        assert processor not in os.sched_getaffinity(0)
    assert os.sched_getaffinity(0) == before
