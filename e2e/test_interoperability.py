"""Other people's HTTP/3 clients at our gateway: docs/interoperability.md is the table of what works."""

import base64
import hashlib
import itertools
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SATELLITE, SERVER4, SERVER6
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe
from conversation import PATIENCE_S, Server, eventually
from datagrams import peer

ATTEMPT = itertools.count()
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


def aioquic(tunnel: Bentpipe, key: Key | str | None, tcp: str, udp: str, authority: Path | None = None) -> Process:
    """The client, on the terminal's side of the satellite link, with a key, a token or neither."""
    words: list[str | Path] = [sys.executable, AIOQUIC]
    if isinstance(key, Key):
        words += ["--certificate", key.certificate, "--key", key.key]
    elif key is not None:
        words += ["--token", key]
    if authority is not None:
        words += ["--authority", authority]
    words += ["--gateway", f"{SATELLITE.far4}:{GATEWAY_PORT}", "--tcp", tcp, "--udp", udp, "--ping", SERVER4]
    return tunnel.path.start(f"aioquic-{next(ATTEMPT)}", tunnel.path.terminal, words)


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


def gateway(tunnel: Bentpipe, *words: str) -> str:
    """What `bentpipe gateway WORDS` prints."""
    config = tunnel.gateway_config.absolute()
    return tunnel.path.gateway.run(host.binary(), "gateway", *words[:2], "--config", config, *words[2:])


def exchange(tunnel: Bentpipe, key: Key | str, authority: Path | None = None) -> dict[str, Any]:
    """What a client has that is let in."""
    server = Server(tunnel.path.server)
    with peer(tunnel.path.server, SERVER4) as echo:
        addresses = (f"{SERVER4}:{server.address[1]}", f"{SERVER4}:{echo.address[1]}")
        client = aioquic(tunnel, key, *addresses, authority=authority)
        connection = server.accept()
        connection.sendall(connection.recv(100))
        results: dict[str, Any] = json.loads(client.wait_line("{", PATIENCE_S))
        connection.close()
    server.close()
    return results


def is_refused(tunnel: Bentpipe, key: Key | str | None) -> bool:
    """Whether a client has nothing."""
    client = aioquic(tunnel, key, f"{SERVER4}:80", f"{SERVER4}:53")
    return client.wait() != 0 and client.out.read_text() == ""


def test_a_bearer_token_lets_its_client_in_while_it_is_good(own_tunnel: Bentpipe) -> None:
    tunnel = own_tunnel
    assert is_refused(tunnel, None)
    assert "no session" in tunnel.gateway.log.read_text(), "without tokens, the handshake wants a key"
    token = gateway(tunnel, "token", "add", "phone").strip()
    assert token.startswith("bentpipe_"), "not with a dash, like an option of its client"
    assert token not in (tunnel.gateway_config.parent / "terminals.toml").read_text()
    assert gateway(tunnel, "token", "list").startswith("phone ")
    results = exchange(tunnel, token)
    assert results["tcp"] == {"headers": {":status": "200"}, "echo": "over CONNECT"}
    assert results["udp"]["datagrams"] == [0, 1, 1000]
    assert results["denied"]["headers"][":status"] == "403"
    assert is_refused(tunnel, token[:-1])
    assert is_refused(tunnel, None)
    assert gateway(tunnel, "token", "revoke", "phone") == "revoked: phone\n"
    assert is_refused(tunnel, token)


def test_a_certificate_of_the_gateways_authority_lets_its_client_in(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    tunnel = own_tunnel
    authority = tmp_path / "authority.pem"
    authority.write_text(gateway(tunnel, "certificate", "gateway", SATELLITE.far4))
    issued = tmp_path / "phone.pem"
    issued.write_text(gateway(tunnel, "certificate", "add", "phone"))
    with tunnel.gateway_config.open("a") as file:
        file.write(f'\n[terminal.phone]\ndeny = ["{SERVER4}:53"]\n')
    tunnel.gateway.signal(signal.SIGHUP)
    eventually(lambda: "reloaded" in tunnel.gateway.log.read_text(), "the gateway tells")
    key = Key(issued, issued)
    results = exchange(tunnel, key, authority)
    assert results["tcp"] == {"headers": {":status": "200"}, "echo": "over CONNECT"}
    gateway(tunnel, "certificate", "revoke", "phone")
    assert is_refused(tunnel, key)
