"""The contract of a system under test."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bentpipe_lab import programs
from bentpipe_lab.errors import NotInPathError, UnsupportedError
from bentpipe_lab.net.evidence import Carrier, SatelliteCounters, Split
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology, address_seen_by_server
from bentpipe_lab.programs import Program
from bentpipe_lab.registry import Part
from bentpipe_lab.workloads.contract import QUIC, TCP, Transfer


@dataclass(frozen=True)
class Settings:
    """What a plan may set of a system; None and what is absent are the system's defaults."""

    controller: str | None = None
    """Its congestion controller, at both ends."""
    initial_window: int | None = None
    """Its initial window, packets, at both ends."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its configuration, by dotted name."""

    @property
    def suffix(self) -> str:
        """What sets one measured system apart from the same one with other settings; empty for the defaults."""
        window = [] if self.initial_window is None else [f"iw{self.initial_window}"]
        return " ".join(
            [*filter(None, [self.controller]), *window, *(f"{key}={value}" for key, value in self.fields.items())]
        )


@dataclass(frozen=True)
class Simulation:
    """A run in virtual time, as a plan asks for it."""

    scenario: Mapping[str, Any]
    """The scenario's fields."""
    link: Link
    transfer: Transfer
    settings: Settings
    limit_s: float
    """How long the transfer may take."""
    sample_every: str
    cold: bool = False
    """Whether the session has carried nothing before."""


class System(Part, ABC):
    """Something between the client and the server, in the places of terminal and gateway.

    A file of this package with one class that extends this one is all that a new system needs.
    """

    required = ("label", "colour", "pale")
    label: ClassVar[str]
    """What figures call it."""
    colour: ClassVar[str]
    """Its colour in figures."""
    pale: ClassVar[str]
    """Its colour for waiting."""
    baseline: ClassVar[bool] = False
    """Whether the others are compared with it; one system is."""
    warms_up: ClassVar[bool] = True
    """Whether it is measured after it has carried traffic for a while."""
    programs: ClassVar[Sequence[Program]] = ()
    """The programs that it needs."""
    carrier: ClassVar[Carrier | Split | None] = None
    """What its own packets are; None when it sends the client's packets as they are."""
    carries: ClassVar[Sequence[str]] = (TCP, QUIC)
    """What of the client's it carries; plans leave out workloads over anything else with it."""
    in_demo: ClassVar[bool] = True
    """Whether the demo measures it."""
    takes_settings: ClassVar[bool] = True
    """Whether it has a controller, an initial window and a configuration to set."""
    takes_fields: ClassVar[bool] = True
    """Whether that configuration has fields beside these two."""
    clocks: ClassVar[tuple[str, ...]] = ("real",)
    """Where it runs: "real" in namespaces over the emulator, "virtual" in the simulator."""

    simulated_packet_s: ClassVar[float] = 2.2e-5
    """Processor time of one of its packets in virtual time, for estimates; `make bench` measures it."""

    def require(self) -> None:
        """Raise unless it is installed; the error says how to install it."""
        programs.require(self.name, self.programs)

    def check(self, _link: Link, _settings: Settings) -> None:
        """Raise a `PlanError` for settings that it cannot take: plans are refused before anything begins."""

    @abstractmethod
    def start(self, path: Topology, settings: Settings) -> None:
        """Start it; it carries traffic when this returns. The path stops what was started through it."""

    @abstractmethod
    def address_at_server(self) -> str:
        """The address from which the server sees the client when the system is in the path."""

    def show_in_path(self, path: Topology) -> dict[str, Any]:
        """Evidence that the client's traffic goes through it; raise without.

        A connection from the client tells the address that the server sees, and which bytes crossed the hop meanwhile:
        those of the system, and those of the client beside it.
        """
        with SatelliteCounters.of(path, self.carrier) as counters:
            seen = self.address_seen(path)
            crossed = counters.read()
        wanted = self.address_at_server()
        if seen != wanted:
            raise NotInPathError(
                f"{self.name} is not in the path: the server sees {seen}, and {wanted} where it is; see its log in"
                f" {path.directory}"
            )
        if self.carrier is not None and not crossed.carried_bytes > crossed.beside_bytes:
            raise NotInPathError(
                f"{self.name} is not in the path: {crossed.carried_bytes} bytes of {self.carrier}, and"
                f" {crossed.beside_bytes} bytes of the client beside it"
            )
        return {"address_seen_by_server": seen, **crossed.as_record()}

    def address_seen(self, path: Topology) -> str:
        """The address that the server sees of a connection of the client's that the system should carry."""
        return address_seen_by_server(path)

    def crossed(self, link: Link) -> Link:
        """The part of a link that its flows cross: all of it, where it does not say otherwise."""
        return link

    def simulation(self, _request: Simulation) -> dict[str, Any]:
        """The plan, for `bentpipe sim`, of a run in virtual time."""
        raise UnsupportedError(f"{self.name} does not run in virtual time")

    def stop(self, path: Topology) -> None:
        """Stop it, in order; what it keeps when it ends well is on disk afterwards."""
        path.stop_system()
