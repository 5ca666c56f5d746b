"""OpenVPN over UDP, as Debian has it: one tunnel between terminal and gateway, end-to-end TCP inside."""

from bentpipe_lab.net.evidence import Carrier
from bentpipe_lab.net.topology import GROUND, SATELLITE, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.systems.parts import keys, routes

PORT = 1194
TERMINAL, GATEWAY = "10.78.0.2", "10.78.0.1"
OPENVPN = Debian("openvpn")


class OpenVpn(System):
    """OpenVPN in user space, each end knows the fingerprint of the other's certificate."""

    name = "openvpn"
    order = 40
    label = "OpenVPN (UDP)"
    colour = "#8c6d1f"
    pale = "#e6dcc0"
    in_demo = False
    takes_settings = False
    programs = (OPENVPN,)
    carrier = Carrier("udp", PORT)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both ends; the tunnel stands when this returns."""
        del settings
        gateway, terminal = (
            keys.identity(path.directory / "openvpn" / end, f"{end}.bentpipe.test") for end in ("gateway", "terminal")
        )
        program = str(OPENVPN.found())
        common = [
            program, "--dev", "ovpn0", "--dev-type", "tun", "--proto", "udp", "--disable-dco", "--dh", "none",
            "--keepalive", "10", "120", "--data-ciphers", "AES-256-GCM", "--verb", "3",
        ]  # fmt: skip
        ends = [
            path.start("openvpn-gateway", path.gateway, [
                *common, "--tls-server", "--port", str(PORT), "--ifconfig", GATEWAY, TERMINAL,
                "--cert", gateway.certificate, "--key", gateway.key, "--peer-fingerprint", terminal.fingerprint(),
            ]),
            path.start("openvpn-terminal", path.terminal, [
                *common, "--tls-client", "--remote", SATELLITE.far4, str(PORT), "--nobind",
                "--ifconfig", TERMINAL, GATEWAY,
                "--cert", terminal.certificate, "--key", terminal.key, "--peer-fingerprint", gateway.fingerprint(),
            ]),
        ]  # fmt: skip
        for end in ends:
            routes.wait_for_log(end, "Initialization Sequence Completed")
        routes.through_device(path, "ovpn0", "ovpn0", TERMINAL)

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4
