"""The offset of another machine's clock, from requests that are answered with its time."""

from collections.abc import Iterable
from dataclasses import dataclass

EXCHANGES = 8


@dataclass(frozen=True)
class Exchange:
    """One request: this machine's clock before and after, the other's in between; nanoseconds since 1970."""

    asked_ns: int
    answered_ns: int
    came_ns: int


@dataclass(frozen=True)
class Offset:
    """How far another clock is ahead of this one."""

    offset_s: float
    uncertain_s: float
    """It may be off by so much either way: half of the round trip, as nothing is known of its two halves."""


def offset(exchanges: Iterable[Exchange]) -> Offset:
    """The offset by the exchange with the shortest round trip, which leaves the least room (as NTP's clock filter)."""
    best = min(exchanges, key=lambda each: each.came_ns - each.asked_ns)
    middle = (best.asked_ns + best.came_ns) / 2
    return Offset((best.answered_ns - middle) / 1e9, (best.came_ns - best.asked_ns) / 2e9)
