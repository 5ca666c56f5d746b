"""Bytes that cross a hop, counted by the gateway's kernel: those of a system, and those of the client beside it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

from bentpipe_lab.errors import LabError
from bentpipe_lab.net.netns import Namespace, checked
from bentpipe_lab.net.topology import GROUND, LAN, SATELLITE, Topology

TABLE = "bentpipe_lab_evidence"


CLIENTS = LAN.far4.rpartition(".")[0] + ".0/24"


@dataclass(frozen=True)
class Carrier:
    """What the packets of a system between terminal and gateway are."""

    protocol: str
    """tcp or udp."""
    port: int
    """At the gateway."""
    device: ClassVar[str] = "sat0"
    """The gateway's, at which they are counted."""

    def __str__(self) -> str:
        """As a person writes it."""
        return f"{self.protocol.upper()} port {self.port} over the satellite hop"

    def arriving(self) -> str:
        """Those that come to the gateway."""
        return f"{self.protocol} dport {self.port}"

    def leaving(self) -> str:
        """Those that leave it."""
        return f"{self.protocol} sport {self.port}"


@dataclass(frozen=True)
class Split:
    """What a system at the gateway sends to servers in its own name: it has none over the satellite hop."""

    protocol: str
    """tcp or udp."""
    device: ClassVar[str] = "gnd0"
    """The gateway's, at which they are counted."""

    def __str__(self) -> str:
        """As a person writes it."""
        return f"{self.protocol.upper()} between the gateway's own address and servers"

    def arriving(self) -> str:
        """Those that come to the gateway."""
        return f"ip daddr {GROUND.near4} meta l4proto {self.protocol}"

    def leaving(self) -> str:
        """Those that leave it."""
        return f"ip saddr {GROUND.near4} meta l4proto {self.protocol}"


@dataclass(frozen=True)
class Crossed:
    """IP bytes over a hop, both directions."""

    carried_bytes: int
    """In packets of the system."""
    beside_bytes: int
    """In packets that have the client's own address."""

    def __sub__(self, before: Self) -> "Crossed":
        """What crossed since then."""
        return Crossed(self.carried_bytes - before.carried_bytes, self.beside_bytes - before.beside_bytes)

    def as_record(self) -> dict[str, int]:
        """As it is kept."""
        return asdict(self)


@dataclass(frozen=True)
class SatelliteCounters:
    """Counters at the gateway's end of a hop."""

    gateway: Namespace

    @classmethod
    @contextmanager
    def of(cls, path: Topology, carrier: Carrier | Split | None) -> Iterator[Self]:
        """Count for as long as the block lasts."""
        device = "sat0" if carrier is None else carrier.device
        carried = (
            ""
            if carrier is None
            else (
                f"""
              chain c_in {{ type filter hook prerouting priority -301; policy accept;
                iifname "{device}" {carrier.arriving()} counter name carried; }}
              chain c_out {{ type filter hook postrouting priority 301; policy accept;
                oifname "{device}" {carrier.leaving()} counter name carried; }}"""
            )
        )
        # A packet has the client's address at one end, wherever it is counted.
        rules = f"""
            table inet {TABLE} {{
              counter carried {{ }}
              counter beside {{ }}
              {carried}
              chain b_in {{ type filter hook prerouting priority -300; policy accept;
                iifname "{device}" ip saddr {CLIENTS} ip daddr != {SATELLITE.far4} counter name beside;
                iifname "{device}" ip daddr {CLIENTS} counter name beside; }}
              chain b_out {{ type filter hook postrouting priority 300; policy accept;
                oifname "{device}" ip daddr {CLIENTS} counter name beside;
                oifname "{device}" ip saddr {CLIENTS} counter name beside; }}
            }}
        """
        done = subprocess.run(
            path.gateway.command(["nft", "-f", "-"]), input=rules, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise LabError(f"the hops of {path.run} cannot be counted: {done.stderr.strip()}")
        try:
            yield cls(path.gateway)
        finally:
            path.gateway.run("nft", "delete", "table", "inet", TABLE)

    def read(self) -> Crossed:
        """What has crossed since the beginning."""
        text = checked(self.gateway.command(["nft", "-j", "list", "counters", "table", "inet", TABLE]))
        found = {
            each["counter"]["name"]: int(each["counter"]["bytes"])
            for each in json.loads(text)["nftables"]
            if "counter" in each
        }
        return Crossed(found["carried"], found["beside"])
