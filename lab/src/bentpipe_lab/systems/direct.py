"""The kernel's TCP from the client to the server, with nothing in between."""

from bentpipe_lab.net.topology import LAN, Topology
from bentpipe_lab.systems.contract import Settings, System


class Direct(System):
    """Nothing in between: the path routes the client's own packets."""

    name = "direct"
    order = 10
    label = "direct TCP"
    colour = "#d9822b"
    pale = "#f3d9bd"
    baseline = True
    warms_up = False
    takes_settings = False

    def start(self, path: Topology, settings: Settings) -> None:
        """Nothing is to be started."""

    def address_at_server(self) -> str:
        """The client's own."""
        return LAN.far4
