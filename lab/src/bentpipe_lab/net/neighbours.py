"""Busy neighbours: processes that never wait, beside a measurement."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bentpipe_lab.net.process import ENDS_WITH_US

LOOP = (*ENDS_WITH_US, "sh", "-c", '[ "$PPID" = "$1" ] || exit; while :; do :; done', "busy")
"""Ends with whoever started it, whose process number is to follow, however that ends: also if that was before the
signal was asked for.
"""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never wait, at the priority of whoever asks for them."""
    neighbours = [subprocess.Popen([*LOOP, str(os.getpid())], stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
