"""Ctrl-C and SIGTERM: both end a run as an exception, and neither cuts the cleaning up short."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)
ASK_AGAIN_S = 20.0
"""A program of the lab that was asked to end has removed its namespaces by then, unless it has not heard.

Where Python ignores exceptions, as in destructors, the one that its signal raises is lost: then it is asked again.
"""


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


def when_closed(pipe: int) -> None:
    """End this thread, the main one, as Ctrl-C does, when the other end of a pipe is closed: its owner has ended.

    Asked again as `end` does, for as long as the process lasts.
    """
    main = threading.get_ident()

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        while True:
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(ASK_AGAIN_S)

    threading.Thread(target=watch, daemon=True).start()


def end(child: "subprocess.Popen[bytes]") -> None:
    """Ask a program of the lab to end, if it runs, and wait until it has cleaned up."""
    while child.poll() is None:
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(ASK_AGAIN_S)


def end_or_kill(child: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Ask a program of the lab to end, and kill it and what it started if it has not after so many seconds."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


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
