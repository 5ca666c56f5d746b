"""TUIC by sing-box: the client's TCP and UDP flows over one QUIC connection between terminal and gateway."""

import json
import secrets
import uuid
from pathlib import Path
from typing import Any

from bentpipe_lab.net.evidence import Carrier
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import GROUND, SATELLITE, Topology
from bentpipe_lab.programs import Go
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.systems.parts import keys, routes

PORT = 8443
INTERCEPTED = 7895
CONTROLLER = "cubic"
"""sing-box has cubic, new_reno and bbr; this is its default."""
SING_BOX = Go(
    "sing-box", source="sing-box", target="github.com/sagernet/sing-box/cmd/sing-box",
    module="github.com/sagernet/sing-box", tags=("with_quic",),
)  # fmt: skip


class Tuic(System):
    """sing-box at both ends; the terminal takes the client's flows by TPROXY."""

    name = "tuic"
    order = 60
    label = "TUIC (sing-box)"
    colour = "#6b4fa0"
    pale = "#d9cfe8"
    in_demo = False
    takes_settings = False
    programs = (SING_BOX,)
    carrier = Carrier("udp", PORT)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both ends; flows are intercepted when this returns."""
        del settings
        place = path.directory.absolute() / "tuic"
        own = keys.identity(place)
        user = {"uuid": str(uuid.uuid4()), "password": secrets.token_urlsafe(24)}
        gateway = {
            "inbounds": [
                {
                    "type": "tuic", "listen": "0.0.0.0", "listen_port": PORT, "users": [user],  # noqa: S104 (a namespace)
                    "congestion_control": CONTROLLER,
                    "tls": {
                        "enabled": True, "alpn": ["h3"], "certificate_path": str(own.certificate),
                        "key_path": str(own.key),
                    },
                }
            ],
            "outbounds": [{"type": "direct"}],
        }  # fmt: skip
        terminal = {
            "inbounds": [{"type": "tproxy", "listen": "0.0.0.0", "listen_port": INTERCEPTED}],  # noqa: S104
            "outbounds": [
                {
                    "type": "tuic", "server": SATELLITE.far4, "server_port": PORT, **user,
                    "congestion_control": CONTROLLER, "udp_relay_mode": "native",
                    "tls": {
                        "enabled": True, "alpn": ["h3"], "server_name": keys.NAME,
                        "certificate_path": str(own.certificate),
                    },
                }
            ],
        }  # fmt: skip
        ends = [
            _start(path, "gateway", path.gateway, place, gateway),
            _start(path, "terminal", path.terminal, place, terminal),
        ]
        for end in ends:
            routes.wait_for_log(end, "sing-box started")
        routes.into_port(path, INTERCEPTED)

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4


def _start(path: Topology, end: str, where: Namespace, place: Path, configuration: dict[str, Any]) -> Process:
    file = place / f"{end}.json"
    file.write_text(json.dumps({"log": {"level": "info", "timestamp": True}, **configuration}, indent=1))
    return path.start(f"sing-box-{end}", where, [SING_BOX.found(), "run", "-c", file])
