"""SOCKS5 at the terminal: by IPv4, by IPv6 and by name, which the gateway resolves."""

from pathlib import Path

import pytest

from bentpipe_lab.errors import LabError
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import BLACKHOLE4, PRIVATE4, SERVER4, SERVER6, UNREACHABLE4
from bentpipe_lab.systems.tunnel import SOCKS, Bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import connect

PRIVATE_NAME = "private.bentpipe.test"
DENIED, UNREACHABLE, UNRESOLVED, REFUSED, TIMED_OUT = 2, 3, 4, 5, 6
"""Replies of RFC 1928: not allowed, network unreachable, host unreachable, refused, TTL expired."""


def fetch(tunnel: Bentpipe, host: str, target: Path, scheme: str = "--socks5-hostname") -> None:
    """Fetch a file by curl through the terminal's proxy."""
    url = f"http://{host}/2MB"
    proxy = f"{SOCKS[0]}:{SOCKS[1]}"
    tunnel.path.terminal.run("curl", "-sS", "--fail", "-g", "--max-time", "90", scheme, proxy, "-o", target, url)


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]", NAME])
def test_fetch(tunnel: Bentpipe, tmp_path: Path, host: str) -> None:
    fetch(tunnel, host, tmp_path / "got")
    assert curl.sha256(tmp_path / "got") == tunnel.path.origin.objects["2MB"].sha256


@pytest.mark.parametrize(
    "host", ["nowhere.bentpipe.test", f"{SERVER4}:9", PRIVATE4, "127.0.0.1", "[::1]", PRIVATE_NAME]
)
def test_what_cannot_be_had_is_an_error(tunnel: Bentpipe, tmp_path: Path, host: str) -> None:
    """A name that does not exist, a closed port, and what the gateway must not reach, by address and by name."""
    with tunnel.hosts.open("a") as hosts:
        hosts.write(f"{PRIVATE4} {PRIVATE_NAME}\n")
    with pytest.raises(LabError) as raised:
        fetch(tunnel, host, tmp_path / "got")
    assert "timed out" not in str(raised.value)
    assert not (tmp_path / "got").exists()


def reply(tunnel: Bentpipe, host: str, port: int) -> int:
    """What the proxy answers to a CONNECT by name or address (RFC 1928, section 6)."""
    with connect(tunnel.path.terminal, SOCKS) as stream:
        stream.sendall(b"\x05\x01\x00" + b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + port.to_bytes(2))
        answer = b""
        while len(answer) < 4:
            piece = stream.recv(100)
            assert piece, f"no answer: {answer!r}"
            answer += piece
    assert answer[:2] == b"\x05\x00"
    return answer[3]


def test_after_the_origin_the_truth_is_told(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    own_tunnel.terminal.stop()
    text = own_tunnel.terminal_config.read_text()
    table = "[ingress.socks5]\n"
    own_tunnel.terminal_config.write_text(text.replace(table, f'{table}answer = "after_origin"\n'))
    own_tunnel.start_terminal()
    for host, port, told in (
        (SERVER4, 9, REFUSED),
        ("nowhere.bentpipe.test", 80, UNRESOLVED),
        (PRIVATE4, 80, DENIED),
        (UNREACHABLE4, 80, UNREACHABLE),
        (BLACKHOLE4, 80, TIMED_OUT),
    ):
        assert reply(own_tunnel, host, port) == told, host
    fetch(own_tunnel, NAME, tmp_path / "got")
    assert curl.sha256(tmp_path / "got") == own_tunnel.path.origin.objects["2MB"].sha256
