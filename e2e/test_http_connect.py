"""The HTTP CONNECT proxy at the terminal, with curl and by hand: what is carried, and what is told when nothing is."""

import socket
import time
from pathlib import Path

import pytest

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import BLACKHOLE4, PRIVATE4, SERVER4, SERVER6, UNREACHABLE4
from bentpipe_lab.systems.tunnel import HTTP, SOCKS, Bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import PATIENCE_S, Server, assert_reset, connect, digest, payload, read_to_end, send_in_background

PROXY = f"http://{HTTP[0]}:{HTTP[1]}"


def ask(tunnel: Bentpipe, request: str) -> tuple[socket.socket, int, dict[str, str]]:
    """Send a request's head to the proxy; the connection, the answer's status and its fields."""
    stream = connect(tunnel.path.terminal, HTTP)
    stream.sendall(request.encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = stream.recv(1)
        assert piece, f"no whole answer: {head!r}"
        head += piece
    status, *fields = head.decode().rstrip().split("\r\n")
    named = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return stream, int(status.split()[1]), named


def connect_head(target: str, *fields: str) -> str:
    """The head of a CONNECT request."""
    return "\r\n".join([f"CONNECT {target} HTTP/1.1", f"Host: {target}", *fields, "", ""])


def configure(tunnel: Bentpipe, table: str, addition: str) -> None:
    """Start the terminal again with something added to a table of its configuration."""
    tunnel.terminal.stop()
    text = tunnel.terminal_config.read_text()
    tunnel.terminal_config.write_text(text.replace(f"[{table}]\n", f"[{table}]\n{addition}\n"))
    tunnel.start_terminal()


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]", NAME])
def test_fetch_over_tls(tunnel: Bentpipe, tmp_path: Path, host: str) -> None:
    certificate = tunnel.path.origin.certificate
    tunnel.path.terminal.run(
        "curl", "-sS", "--fail", "-g", "--max-time", "90", "--cacert", certificate, "--proxy", PROXY,
        "-o", tmp_path / "got", f"https://{host}/2MB",
    )  # fmt: skip
    assert curl.sha256(tmp_path / "got") == tunnel.path.origin.objects["2MB"].sha256


def test_bytes_right_behind_the_request_are_carried(tunnel: Bentpipe) -> None:
    server = Server(tunnel.path.server)
    target = f"{server.address[0]}:{server.address[1]}"
    question, answer = payload(300_000, "question"), payload(500_000, "answer")
    stream = connect(tunnel.path.terminal, HTTP)
    send_in_background(stream, connect_head(target).encode() + question, then_shut=True)
    with server.accept() as peer:
        assert digest(read_to_end(peer)) == digest(question)
        send_in_background(peer, answer, then_shut=True)
        head, _, rest = read_to_end(stream).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert digest(rest) == digest(answer)
    server.close()


def test_a_plain_request_is_told_what_to_do(tunnel: Bentpipe) -> None:
    for request, status in (
        (f"GET http://{SERVER4}/2MB HTTP/1.1\r\nHost: {SERVER4}\r\n\r\n", 405),
        (connect_head("example.net"), 400),
        ("CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("garbage\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: a\r\nX: {'x' * 70_000}\r\n\r\n", 431),
    ):
        stream, told, _ = ask(tunnel, request)
        assert told == status, request[:60]
        stream.close()


def test_a_pac_file_names_both_proxies(tunnel: Bentpipe) -> None:
    script = tunnel.path.terminal.run("curl", "-sS", "--fail", f"{PROXY}/proxy.pac")
    assert f'return "PROXY {HTTP[0]}:{HTTP[1]}"' in script
    assert f'return "SOCKS5 {SOCKS[0]}:{SOCKS[1]}"' in script


def test_a_head_that_never_ends_is_let_go_and_others_are_served(tunnel: Bentpipe) -> None:
    slow = [connect(tunnel.path.terminal, HTTP) for _ in range(100)]
    for stream in slow:
        stream.sendall(b"CONNECT example.net:443 HTTP/1.1\r\nHost:")
    stream, status, _ = ask(tunnel, connect_head(f"{SERVER4}:80"))
    assert status == 200
    stream.close()
    began = time.monotonic()
    for stream in slow:
        try:
            while stream.recv(1000):
                pass
        except ConnectionResetError:
            pass
    assert time.monotonic() - began < PATIENCE_S


def test_at_once_a_refusal_is_a_reset(tunnel: Bentpipe) -> None:
    stream, status, _ = ask(tunnel, connect_head(f"{SERVER4}:9"))
    assert status == 200
    assert_reset(stream)


def test_after_the_origin_the_truth_is_told(own_tunnel: Bentpipe) -> None:
    configure(own_tunnel, "ingress.http", 'answer = "after_origin"')
    for target, status, why in (
        (f"{SERVER4}:9", 502, "connection_refused"),
        ("nowhere.bentpipe.test:80", 502, "dns_error"),
        (f"{PRIVATE4}:80", 403, "destination_ip_prohibited"),
        (f"{UNREACHABLE4}:80", 502, "destination_ip_unroutable"),
        (f"{BLACKHOLE4}:80", 504, "connection_timeout"),
    ):
        stream, told, fields = ask(own_tunnel, connect_head(target))
        assert told == status, f"{target}: {fields}"
        assert why in fields["proxy-status"], f"{target}: {fields}"
        # The connection is good for another request.
        stream.sendall(connect_head(f"{SERVER4}:80").encode())
        stream.close()
    stream, told, _ = ask(own_tunnel, connect_head(f"{SERVER4}:80"))
    assert told == 200
    stream.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
    assert read_to_end(stream).startswith(b"HTTP/1.1 ")


def test_names_and_passwords(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    users = own_tunnel.terminal_config.with_name("users")
    users.touch(mode=0o600)
    users.write_text("ann:secret\n")
    for table in ("ingress.http", "ingress.socks5"):
        configure(own_tunnel, table, 'users = "users"')
    stream, status, fields = ask(own_tunnel, connect_head(f"{SERVER4}:80"))
    assert (status, "Basic" in fields["proxy-authenticate"]) == (407, True)
    stream.close()

    def fetch(proxy: str, user: str) -> None:
        own_tunnel.path.terminal.run(
            "curl", "-sS", "--fail", "--max-time", "90", "--proxytunnel", "--proxy", proxy, "--proxy-user", user,
            "-o", tmp_path / "got", f"http://{SERVER4}/2MB",
        )  # fmt: skip

    for proxy in (PROXY, f"socks5h://{SOCKS[0]}:{SOCKS[1]}"):
        fetch(proxy, "ann:secret")
        with pytest.raises(LabError):
            fetch(proxy, "ann:wrong")
    users.chmod(0o644)
    own_tunnel.terminal.stop()
    with pytest.raises(LabError, match="open to others"):
        own_tunnel.path.terminal.run(host.binary(), "terminal", "--config", own_tunnel.terminal_config.absolute())
