"""Busy neighbours: processes that never wait, beside a measurement."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

LOOP = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done")
"""Ends with whoever started it, however that ends."""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never wait, at the priority of whoever asks for them."""
    neighbours = [subprocess.Popen(LOOP, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
