"""Hysteria 2: its core in a small program of the lab, over one QUIC connection between terminal and gateway."""

import secrets

from bentpipe_lab.net.evidence import Carrier
from bentpipe_lab.net.topology import GROUND, SATELLITE, Topology
from bentpipe_lab.programs import Go
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.systems.parts import keys, routes

PORT = 8444
INTERCEPTED = 7896
HYSTERIA = Go("hysteria", source="hysteria", module="github.com/apernet/hysteria/core/v2")


class Hysteria2(System):
    """Both ends with their defaults: BBR, because no rate of the link is told to it."""

    name = "hysteria2"
    order = 70
    label = "Hysteria 2"
    colour = "#0f8b8d"
    pale = "#c0e0e0"
    in_demo = False
    takes_settings = False
    programs = (HYSTERIA,)
    carrier = Carrier("udp", PORT)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both ends; the connection stands and flows are intercepted when this returns."""
        del settings
        place = path.directory.absolute() / "hysteria"
        own = keys.identity(place)
        password = place / "password"
        password.write_text(secrets.token_urlsafe(24))
        server = path.start("hysteria-gateway", path.gateway, [
            HYSTERIA.found(), "server", "--listen", f"{SATELLITE.far4}:{PORT}", "--certificate", own.certificate,
            "--key", own.key, "--password", password,
        ])  # fmt: skip
        server.wait_line("ready")
        client = path.start("hysteria-terminal", path.terminal, [
            HYSTERIA.found(), "client", "--server", f"{SATELLITE.far4}:{PORT}", "--name", keys.NAME,
            "--authority", own.certificate, "--password", password, "--tproxy", str(INTERCEPTED),
        ])  # fmt: skip
        client.wait_line("ready")
        routes.into_port(path, INTERCEPTED)

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4
