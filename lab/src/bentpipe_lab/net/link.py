"""What a scenario's links are, as `bentpipe link explain` tells it: the lab computes no physics of its own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.net import host, netns


@dataclass(frozen=True)
class Direction:
    """One direction of the satellite link."""

    rate_bit_s: float
    one_way_delay_s: float
    loss: float


@dataclass(frozen=True)
class Link:
    """The whole path of a scenario: the satellite link and the ground segment behind the gateway."""

    name: str
    title: str
    source: str
    forward: Direction
    """Gateway to terminal."""
    back: Direction
    """Terminal to gateway: the return link."""
    satellite_rtt_s: float
    ground_rtt_s: float

    @property
    def path_rtt_s(self) -> float:
        """Round-trip time from the client to the server, empty queues."""
        return self.satellite_rtt_s + self.ground_rtt_s

    @classmethod
    def from_explanation(cls, explanation: dict[str, Any]) -> "Link":
        """Read what `bentpipe link explain --json` printed."""
        return cls(
            name=explanation["name"],
            title=explanation.get("title") or explanation["name"],
            source=explanation["source"],
            forward=_direction(explanation["forward"]),
            back=_direction(explanation["return"]),
            satellite_rtt_s=explanation["satellite_rtt_ns"] / 1e9,
            ground_rtt_s=(explanation.get("ground_rtt_ns") or 0) / 1e9,
        )


def explain(scenario: Path) -> dict[str, Any]:
    """Ask the link model about a scenario file."""
    explanation: dict[str, Any] = json.loads(
        netns.checked([str(host.binary()), "link", "explain", str(scenario), "--json"])
    )
    return explanation


def _direction(explanation: dict[str, Any]) -> Direction:
    return Direction(
        rate_bit_s=float(explanation["rate_bit_s"]),
        one_way_delay_s=explanation["one_way_delay_ns"] / 1e9,
        loss=float(explanation["loss"]),
    )
