"""A player of HTTP Live Streaming: it fetches segments as far ahead as its buffer is long, against a clock.

A program of its own, because it runs inside the client's namespace: it reads a task as JSON from standard input and
prints the outcome as JSON.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pycurl

from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict


@dataclass
class Clock:
    """What a viewer sees: sound and picture begin, go on, or wait for a segment."""

    segment_s: float
    before_start: int
    """Segments that are there before it begins."""
    arrivals: list[float] = field(default_factory=list)
    """When each segment was there, since play was pressed."""

    def startup_s(self) -> float:
        """When it begins."""
        return self.arrivals[min(self.before_start, len(self.arrivals)) - 1]

    def waits(self) -> Sequence[float]:
        """How long it waited, each time that it ran out of segments."""
        due = self.startup_s()
        found = []
        for arrival in self.arrivals:
            if arrival > due + 1e-6:
                found.append(arrival - due)
                due = arrival
            due += self.segment_s
        return found

    def ahead_s(self, now: float) -> float:
        """What is there and not yet played."""
        if len(self.arrivals) < self.before_start:
            return len(self.arrivals) * self.segment_s
        played = max(0.0, now - self.startup_s() - sum(self.waits()))
        return len(self.arrivals) * self.segment_s - played


def main() -> int:
    """Read a task, play, print what came of it."""
    task = json.load(sys.stdin)
    json.dump(asdict(play(task, _fetcher(task), time.monotonic, time.sleep)), sys.stdout)
    return 0


def play(
    task: dict[str, Any], fetch: Callable[[str], bytes], now: Callable[[], float], sleep: Callable[[float], None]
) -> Outcome:
    """Fetch the playlist, then every segment in its turn; each is to be what the server has."""
    began, received = now(), 0
    clock = Clock(task["segment_s"], task["before_start"])
    try:
        listed = [line for line in fetch(task["playlist"]).decode().splitlines() if line and not line.startswith("#")]
        if listed != [segment["name"] for segment in task["segments"]]:
            return Outcome(Verdict.WRONG_CONTENT, detail="the playlist is not the server's")
        for segment in task["segments"]:
            sleep(max(0.0, clock.ahead_s(now() - began) - task["ahead_s"]))
            body = fetch(segment["path"])
            if hashlib.sha256(body).hexdigest() != segment["sha256"]:
                return Outcome(Verdict.WRONG_CONTENT, detail=f"{segment['name']}: {len(body)} bytes that are others")
            received += len(body)
            clock.arrivals.append(now() - began)
    except pycurl.error as error:
        return Outcome(Verdict.FAILED, bytes_received=received, detail=f"after {len(clock.arrivals)} segments: {error}")
    waits = clock.waits()
    metrics = {
        "startup_s": clock.startup_s(),
        "rebuffering_s": sum(waits),
        "stalls": float(len(waits)),
        "rebuffering_percent": 100 * sum(waits) / (len(clock.arrivals) * clock.segment_s),
    }
    return Outcome(Verdict.OK, clock.startup_s(), received, metrics=metrics)


def _fetcher(task: dict[str, Any]) -> Callable[[str], bytes]:
    handle = pycurl.Curl()

    def fetch(path: str) -> bytes:
        handle.setopt(pycurl.URL, task["base"] + path)
        handle.setopt(pycurl.NOPROXY, "*")
        handle.setopt(pycurl.RESOLVE, task["resolve"])
        handle.setopt(pycurl.CAINFO, task["authority"])
        handle.setopt(pycurl.FAILONERROR, 1)
        handle.setopt(pycurl.LOW_SPEED_LIMIT, 1)
        handle.setopt(pycurl.LOW_SPEED_TIME, 30)
        return bytes(handle.perform_rb())

    return fetch


if __name__ == "__main__":
    sys.exit(main())
