"""QUIC from end to end, by the simulator's own endpoints: a controller alone, without a tunnel, in virtual time."""

import math
from dataclasses import replace
from typing import Any

from bentpipe_lab.errors import UnsupportedError
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.systems.contract import Settings, Simulation, System

FIELDS = frozenset({"ack_after", "granularity", "idle", "initial_rtt", "pacing", "packet", "warm"})
"""What a plan may set of both ends, as fields of the simulator's flow; the others follow from workload and axes."""


class Quic(System):
    """A new QUIC connection over the satellite link alone: its handshake counts, the ground does not.

    Fields of its transport are those of [flow] in a plan of the simulator.
    """

    name = "quic"
    order = 30
    label = "QUIC, new connection"
    colour = "#1a7f4b"
    pale = "#c2e3d0"
    warms_up = False
    clocks = ("virtual",)
    simulated_packet_s = 8e-6

    def start(self, path: Topology, settings: Settings) -> None:
        """It has no programs to start."""
        del path, settings
        raise UnsupportedError("quic runs in virtual time only: the simulator has its endpoints")

    def address_at_server(self) -> str:
        """Nobody's: there is no server."""
        raise UnsupportedError("quic runs in virtual time only: there is no server to see an address")

    def crossed(self, link: Link) -> Link:
        """The satellite link: the simulator's connections end at the gateway's place."""
        return replace(link, ground_rtt_s=0.0, first_byte_s=link.satellite_rtt_s)

    def simulation(self, request: Simulation) -> dict[str, Any]:
        """One connection that fetches the bytes."""
        if request.transfer.upload:
            raise UnsupportedError("quic has no upload in virtual time: use a scenario with its directions exchanged")
        if unknown := sorted(set(request.settings.fields) - FIELDS):
            raise UnsupportedError(
                f"quic has no transport.{unknown[0]} in virtual time: it has {', '.join(sorted(FIELDS))}"
            )
        flow: dict[str, Any] = {
            "controller": request.settings.controller or "satellite",
            "bytes": f"{request.transfer.size} B",
            **request.settings.fields,
        }
        if request.settings.initial_window is not None:
            flow["initial_window"] = request.settings.initial_window
        return {
            "until": f"{math.ceil(request.limit_s * 1e3)} ms",
            "sample_every": request.sample_every,
            "link": request.scenario,
            "flow": flow,
        }
