"""What carries the traffic from the client to the server: one file, one class each; `SYSTEMS` holds them by name."""

import sys

from bentpipe_lab.registry import Registry
from bentpipe_lab.systems.contract import System

SYSTEMS: Registry[System] = Registry("system", System)
SYSTEMS.find(sys.modules[__name__])


def baseline() -> System:
    """The system that all others are compared with."""
    return next(system for system in SYSTEMS if system.baseline)


def compared() -> list[System]:
    """The systems that are compared with the baseline."""
    return [system for system in SYSTEMS if not system.baseline]


def system_of(measured: str) -> System | None:
    """The system of a row or sample, whose name may be followed by settings: "bentpipe cubic"."""
    names = (name for name in SYSTEMS.names() if measured == name or measured.startswith(f"{name} "))
    best = max(names, key=len, default=None)
    return None if best is None else SYSTEMS[best]
