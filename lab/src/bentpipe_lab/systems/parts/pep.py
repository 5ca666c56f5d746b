"""What the splitting proxies of `bentpipe` have in common as systems under test."""

from collections.abc import Sequence
from typing import ClassVar

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import GROUND
from bentpipe_lab.programs import Program
from bentpipe_lab.systems.contract import System

SATELLITE_WINDOW = 100
"""Packets, initially, over the satellite, as Kosek et al. had it; elsewhere 10."""


class Pep(System):
    """Proxies of our own binary, the last of them at the gateway; nothing is warmed up."""

    in_demo = False
    warms_up = False
    programs: ClassVar[Sequence[Program]] = ()

    def require(self) -> None:
        """Raise unless the binary is built."""
        host.binary()

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4
