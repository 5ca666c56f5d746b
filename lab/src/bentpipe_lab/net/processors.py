"""Processors that emulators have for themselves, and those that are left to the programs that are measured.

On a kernel without preemption a system call of another process holds an emulator up for as long as it takes, whatever
the priorities; on a processor where nothing else is started there are none. Emulators share theirs.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

ALLOWED = frozenset(os.sched_getaffinity(0))
"""What this process could use when it began."""
ONE_OF = 4
"""So many processors have one for emulators."""


def divide(allowed: set[int], run: int, *, alone: bool = False) -> tuple[int, set[int]] | None:
    """The emulator's processor for a run, by its number, and those of all other programs.

    None with one processor; and with so few that programs would lose a large part, where a path is measured alone.
    """
    if len(allowed) < (ONE_OF if alone else 2):
        return None
    emulators = sorted(allowed)[: max(1, len(allowed) // ONE_OF)]
    return emulators[run % len(emulators)], allowed - set(emulators)


@contextmanager
def kept_from_emulators(allowed: Iterable[int] = ALLOWED, *, alone: bool = False) -> Iterator[int | None]:
    """Keep this thread, and what it starts, from emulators' processors; which of them its own emulator may have."""
    before = os.sched_getaffinity(0)
    division = divide(set(allowed), os.getpid(), alone=alone)
    if division is None:
        yield None
        return
    processor, others = division
    os.sched_setaffinity(0, others)
    try:
        yield processor
    finally:
        os.sched_setaffinity(0, before)
