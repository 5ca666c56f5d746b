"""`bentpipe tcp-pep`, alone at the gateway and in two boxes: what applications see, and what the kernel was told."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import GROUND, LAN, PRIVATE4, SATELLITE, SERVER4, SERVER6, Topology, topology
from conversation import (
    Server,
    assert_made_and_reset,
    assert_reset,
    connect,
    conversation,
    digest,
    eventually,
    payload,
    read_to_end,
    reset,
    send_in_background,
)
from pep import BOXES, READY, SECOND_BOX, start


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path, web_server=False) as built:
        yield built


# The gateway leaves alone what it is connected to itself; this address of the server's is behind a router.
FAR = PRIVATE4


@pytest.mark.parametrize(
    ("boxes", "address"), [("integrated", PRIVATE4), ("distributed", SERVER4), ("distributed", SERVER6)]
)
def test_both_directions_end_for_themselves(path: Topology, boxes: str, address: str) -> None:
    start(path, boxes)
    with conversation(path, address) as (client, server):
        assert server.getpeername()[0] in (GROUND.near4, GROUND.near6), "the proxy's connection, not the client's"
        assert client.getpeername()[0] == address, "the client notices nothing"
        up, down = payload(3_000_000, "up"), payload(5_000_000, "down")
        sending = send_in_background(client, up, then_shut=True)
        assert digest(read_to_end(server)) == digest(up)
        sending.join()
        # The client has ended; the server has not.
        answering = send_in_background(server, down, then_shut=True)
        assert digest(read_to_end(client)) == digest(down)
        answering.join()


@BOXES
def test_a_reset_goes_through_both_ways(path: Topology, boxes: str) -> None:
    start(path, boxes)
    with conversation(path, FAR) as (client, server):
        reset(server)
        assert_reset(client)
    with conversation(path, FAR) as (client, server):
        reset(client)
        assert_reset(server)


@BOXES
def test_a_refusal_is_a_reset(path: Topology, boxes: str) -> None:
    start(path, boxes)
    server = Server(path.server, FAR)
    server.close()
    assert_made_and_reset(path.client, server.address)


def sockets(path: Topology) -> str:
    """The gateway's TCP connections with the server, as the kernel tells of them."""
    return path.gateway.run("ss", "-tinH", "state", "established", "dst", FAR)


@BOXES
def test_controller_and_initial_window_are_the_sides(path: Topology, boxes: str) -> None:
    start(path, boxes, "--next-controller", "reno", "--next-window", "77")
    with conversation(path, FAR):
        told = sockets(path)
        assert "reno" in told, told
        # One packet each way, acknowledged, has let it grow a little.
        window = re.search(r"cwnd:(\d+)", told)
        assert window is not None
        assert 77 <= int(window[1]) <= 80, told


@BOXES
def test_nothing_is_left_after_the_end(path: Topology, boxes: str) -> None:
    before = routing(path)
    started = start(path, boxes, "--next-window", "50", "--client-window", "50")
    assert routing(path) != before
    for process in reversed(started):
        assert process.stop() == 0
    assert routing(path) == before
    with conversation(path, FAR) as (_, server):
        assert server.getpeername()[0] == LAN.far4, "connections go their own way again"


def routing(path: Topology) -> list[str]:
    """Rules and routes of both boxes; without those that the kernel adds when an address has been tried for a while."""
    lines = [
        line
        for box in (path.gateway, path.terminal)
        for family in ("-4", "-6")
        for listed in (("rule",), ("route", "show", "table", "all"))
        for line in box.ip(family, *listed).splitlines()
    ]
    return [line for line in lines if "fe80:" not in line]


def test_the_second_box_serves_the_first_only_and_goes_where_it_may(path: Topology) -> None:
    second = (host.binary(), "tcp-pep", "--listen", SECOND_BOX, "--from", f"{SATELLITE.near4}/32")
    path.start("second", path.gateway, second).wait_line(READY)
    listener = (SATELLITE.far4, 5991)
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    addresses = socket.inet_aton("192.0.2.1") + socket.inet_aton(SERVER4)
    header = signature + b"\x21\x11" + (12).to_bytes(2, "big") + addresses + (1).to_bytes(2, "big")
    server = Server(path.server)
    # A stranger: closed at once, whatever it says.
    stranger = connect(path.client, listener)
    assert stranger.recv(1) == b""
    for said in (
        header + server.address[1].to_bytes(2, "big"),  # a private address that nobody has allowed
        b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
        signature + b"\x21\x11\xff\xff",
    ):
        first = connect(path.terminal, listener)
        first.sendall(said)
        assert_reset(first)
    server.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--interfaces", "lan0", "--next-controller", "nonesuch"], "no congestion controller"),
        (["--interfaces", "nonesuch0"], "no network interface"),
        (["--listen", "127.0.0.1:5999"], "--from"),
        (["--interfaces", "lan0", "--next-window", "0"], "0 is not in 1..=1000"),
        ([], "--interfaces"),
    ],
)
def test_what_cannot_be_is_told(path: Topology, options: list[str], said: str) -> None:
    command = path.terminal.command([host.binary(), "tcp-pep", *options])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert said in done.stderr
    rules = path.terminal.ip("rule")
    assert "fwmark" not in rules, rules


def test_many_connections_at_once(path: Topology) -> None:
    start(path, "distributed")
    server = Server(path.server)
    server.socket.listen(200)
    clients = [connect(path.client, server.address) for _ in range(100)]
    accepted = [server.accept() for _ in clients]
    for client in clients:
        client.sendall(b"x")
    eventually(lambda: all(each.recv(1, socket.MSG_PEEK) == b"x" for each in accepted), "every client's byte")
    for each in (*clients, *accepted):
        each.close()
    server.close()
