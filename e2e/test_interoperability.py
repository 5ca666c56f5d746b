"""Other people's HTTP/3 clients at our gateway: docs/interoperability.md is the table of what works."""

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SATELLITE, SERVER4, SERVER6
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe
from conversation import PATIENCE_S, Server
from datagrams import peer

AIOQUIC = Path(__file__).parent / "clients" / "aioquic_client.py"


@dataclass
class Key:
    """A client's own key with a certificate that it has signed itself."""

    key: Path
    certificate: Path

    def fingerprint(self) -> str:
        """As the gateway's list of terminals has it."""
        words = ["openssl", "x509", "-in", str(self.certificate), "-pubkey", "-noout"]
        pem = subprocess.run(words, capture_output=True, check=True).stdout
        der = subprocess.run(
            ["openssl", "pkey", "-pubin", "-outform", "DER"], input=pem, capture_output=True, check=True
        )
        return "sha256:" + base64.urlsafe_b64encode(hashlib.sha256(der.stdout).digest()).decode().rstrip("=")


@pytest.fixture
def key(tmp_path: Path) -> Key:
    made = Key(tmp_path / "client.key", tmp_path / "client.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "30", "-subj", "/CN=client"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        capture_output=True,
        check=True,
    )
    return made


def enrol(tunnel: Bentpipe, key: Key) -> None:
    """Put a client's key on the gateway's list, as its operator would with an editor."""
    terminals = tunnel.gateway_config.parent / "terminals.toml"
    with terminals.open("a") as file:
        file.write(f'\n[[terminal]]\nkey = "{key.fingerprint()}"\nname = "aioquic"\n')


def aioquic(tunnel: Bentpipe, key: Key, tcp: str, udp: str) -> Process:
    """The client, on the terminal's side of the satellite link."""
    words: list[str | Path] = [sys.executable, AIOQUIC, "--certificate", key.certificate, "--key", key.key]
    words += ["--gateway", f"{SATELLITE.far4}:{GATEWAY_PORT}", "--tcp", tcp, "--udp", udp, "--ping", SERVER4]
    return tunnel.path.start("aioquic", tunnel.path.terminal, words)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_aioquic_has_connect_and_connect_udp(own_tunnel: Bentpipe, key: Key, address: str) -> None:
    tunnel = own_tunnel
    enrol(tunnel, key)
    written = f"[{address}]" if ":" in address else address
    server = Server(tunnel.path.server, address)
    with peer(tunnel.path.server, address) as echo:
        client = aioquic(tunnel, key, f"{written}:{server.address[1]}", f"{written}:{echo.address[1]}")
        connection = server.accept()
        connection.sendall(connection.recv(100))
        results: dict[str, Any] = json.loads(client.wait_line("{", PATIENCE_S))
        connection.close()
    server.close()
    assert results["tcp"] == {"headers": {":status": "200"}, "echo": "over CONNECT"}
    assert results["udp"]["headers"] == {":status": "200", "capsule-protocol": "?1"}
    assert results["udp"]["datagrams"] == [0, 1, 1000]
    assert results["udp"]["capsule"] == 9000
    assert results["denied"]["headers"][":status"] == "403"
    assert "destination_ip_prohibited" in results["denied"]["headers"]["proxy-status"]
    assert results["ip"]["headers"][":status"] == "403", "without permission"


def test_aioquic_has_connect_ip(own_tunnel: Bentpipe, key: Key) -> None:
    tunnel = own_tunnel
    enrol(tunnel, key)
    tunnel.gateway.stop()
    with tunnel.gateway_config.open("a") as file:
        file.write('\n[ip]\nnetworks = ["10.88.0.0/24"]\n\n[policy]\nip = ["icmp"]\n')
    tunnel.start_gateway()
    server = Server(tunnel.path.server)
    with peer(tunnel.path.server, SERVER4) as echo:
        client = aioquic(tunnel, key, f"{SERVER4}:{server.address[1]}", f"{SERVER4}:{echo.address[1]}")
        connection = server.accept()
        connection.sendall(connection.recv(100))
        results: dict[str, Any] = json.loads(client.wait_line("{", PATIENCE_S))
        connection.close()
    server.close()
    assert results["ip"]["headers"] == {":status": "200", "capsule-protocol": "?1"}
    assert results["ip"]["assigned"][:6] == [1, 0, 4, 10, 88, 0]
    assert results["ip"]["reply"] == {"from": SERVER4, "type": 0}


def test_a_client_whose_key_is_not_on_the_list_has_nothing(tunnel: Bentpipe, key: Key) -> None:
    client = aioquic(tunnel, key, f"{SERVER4}:80", f"{SERVER4}:53")
    assert client.wait() != 0
    assert client.out.read_text() == ""
    assert "not enrolled" in client.log.read_text() + tunnel.gateway.log.read_text()
