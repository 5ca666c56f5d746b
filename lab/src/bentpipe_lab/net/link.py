"""What a scenario's links are, as `bentpipe link explain` tells it: the lab computes no physics of its own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.net import host, netns

PAYLOAD = 1_000_000_000
"""Bytes of the transfer whose bound is asked for: time on the wire grows with the payload."""


@dataclass(frozen=True)
class Direction:
    """One direction of the satellite link."""

    rate_bit_s: float
    one_way_delay_s: float
    loss: float
    payload_s: float
    """Least time on the wire of a byte of payload, headers and losses counted, seconds."""


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
    first_byte_s: float
    """Least time to the first byte of a new flow through split connections over an open session, seconds."""

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
            forward=_direction(explanation, "forward"),
            back=_direction(explanation, "return"),
            satellite_rtt_s=explanation["satellite_rtt_ns"] / 1e9,
            ground_rtt_s=explanation["ground_rtt_ns"] / 1e9,
            first_byte_s=explanation["first_byte_ns"] / 1e9,
        )


def explain(scenario: Path) -> dict[str, Any]:
    """Ask the link model about a scenario file, with the bound of a transfer of `PAYLOAD` bytes over it."""
    command = [str(host.binary()), "link", "explain", str(scenario), "--json", "--bytes", f"{PAYLOAD} B"]
    explanation: dict[str, Any] = json.loads(netns.checked(command))
    return explanation


def _direction(explanation: dict[str, Any], name: str) -> Direction:
    direction = explanation[name]
    (bound,) = explanation["bounds"]
    return Direction(
        rate_bit_s=float(direction["rate_bit_s"]),
        one_way_delay_s=direction["one_way_delay_ns"] / 1e9,
        loss=float(direction["loss"]),
        payload_s=bound[name]["transfer_ns"] / 1e9 / bound["bytes"],
    )
