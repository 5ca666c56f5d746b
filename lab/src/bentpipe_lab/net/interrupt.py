"""Ctrl-C and SIGTERM: both end a run as an exception, and neither cuts the cleaning up short."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(KeyboardInterrupt):
    """Somebody asked the run to end."""


@contextmanager
def as_exception() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into an exception in the main thread, for as long as this lasts."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise InterruptedRunError(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Leave cleaning up undisturbed: a second Ctrl-C is heard when it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: heard.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])
