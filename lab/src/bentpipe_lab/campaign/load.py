"""Load of the machine before a campaign in real time: other work that keeps the emulator from being punctual."""

import os

BUSY = 0.5
"""Runnable processes for each processor, beside those of a campaign, from which on many runs are late."""


def advice(load: float, processors: int) -> str | None:
    """What would make the emulator more punctual; None where the machine has little else to do."""
    if load < BUSY * processors:
        return None
    return (
        f"the machine has other work: its load is {load:.1f} on {processors} processors; the emulator will be late in"
        " many runs, which are repeated and, where that does not help, count nowhere: better wait until it is quiet"
    )


def now() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]
