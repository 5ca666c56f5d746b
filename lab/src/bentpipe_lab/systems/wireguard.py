"""WireGuard in user space (wireguard-go): one tunnel between terminal and gateway, end-to-end TCP inside."""

import socket
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net.evidence import Carrier
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import GROUND, SATELLITE, Topology
from bentpipe_lab.programs import Go
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.systems.parts import keys, routes

PORT = 51820
TERMINAL, GATEWAY = "10.78.0.2", "10.78.0.1"
MTU = "1420"
CONTROL = Path("/var/run/wireguard")
"""Where the program puts its control sockets, named after the devices."""
WIREGUARD = Go(
    "wireguard-go", source="wireguard", target="golang.zx2c4.com/wireguard", module="golang.zx2c4.com/wireguard"
)


class WireGuard(System):
    """wireguard-go at both ends, with keys made for the path."""

    name = "wireguard"
    order = 50
    label = "WireGuard (user space)"
    colour = "#88171a"
    pale = "#e8c4c5"
    in_demo = False
    takes_settings = False
    programs = (WIREGUARD,)
    carrier = Carrier("udp", PORT)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both ends; the tunnel carries packets when this returns."""
        del settings
        (gateway_private, gateway_public), (terminal_private, terminal_public) = keys.x25519(), keys.x25519()
        # Control sockets lie in one directory of the machine, so devices have names of their own.
        unique = path.run.removeprefix("bp").replace("-", "")
        devices = f"g{unique}"[:15], f"t{unique}"[:15]
        _start(path, "gateway", path.gateway, devices[0], GATEWAY)
        _configure(devices[0], gateway_private, [f"listen_port={PORT}"], terminal_public, [
            f"allowed_ip={routes.CLIENTS}", f"allowed_ip={TERMINAL}/32",
        ])  # fmt: skip
        _start(path, "terminal", path.terminal, devices[1], TERMINAL)
        _configure(devices[1], terminal_private, [], gateway_public, [
            f"endpoint={SATELLITE.far4}:{PORT}", "persistent_keepalive_interval=25", "allowed_ip=0.0.0.0/0",
        ])  # fmt: skip
        routes.through_device(path, devices[1], devices[0], TERMINAL)

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4


def _start(path: Topology, end: str, where: Namespace, device: str, address: str) -> None:
    process = path.start(f"wireguard-{end}", where, [WIREGUARD.found(), "-f", device])
    routes.wait_for_file(CONTROL / f"{device}.sock", process)
    where.ip("address", "add", f"{address}/24", "dev", device)
    where.ip("link", "set", device, "mtu", MTU, "up")


def _configure(device: str, private: bytes, own: list[str], peer: bytes, of_peer: list[str]) -> None:
    """Set a device up over its control socket."""
    lines = ["set=1", f"private_key={private.hex()}", *own, f"public_key={peer.hex()}", *of_peer, "", ""]
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(CONTROL / f"{device}.sock"))
        control.sendall("\n".join(lines).encode())
        answer = control.recv(4096).decode()
    if "errno=0" not in answer:
        raise ProgramError(f"wireguard-go does not take the settings of {device}: {answer.strip()}")
