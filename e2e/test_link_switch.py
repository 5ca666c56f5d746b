"""A switch to another link with another address for the terminal: Bujari's handover from the ground to a low orbit."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.topology import SATELLITE, Topology
from bentpipe_lab.systems.tunnel import start_bentpipe
from conversation import conversation
from emulated import bentpipe, emulated

HANDOVER = host.REPOSITORY / "scenarios/bujari-handover.toml"
PATIENCE_S = 30.0
QUIET_S = 2.0
"""After which the terminal has acknowledged everything and would say nothing for another three seconds."""
NOTICED_S = 2.0
"""Longer than a machine under load takes, shorter than what the keep-alive, every 5 s, takes to notice."""


def test_bujaris_handover_changes_link_and_address_at_its_moment(tmp_path: Path) -> None:
    soon = HANDOVER.read_text().replace('at = "90 s"', 'at = "3 s"')
    with emulated(tmp_path, soon) as link:
        before = link.ping(5)
        assert len(before) == 5
        assert 60 <= min(before) < 80
        began = time.monotonic()
        while not link.show()["changes"]:
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.1)
        after = link.ping()
        assert len(after) == 8
        assert 120 <= min(after) < 140
        shown = link.terminal.ip("-4", "address", "show", "sat0")
        assert "10.98.0.3/24" in shown
        assert "10.98.0.1/24" not in shown
        (change,) = link.end().fields["changes"]
        assert 3.0 <= change["at_s"] < 3.5
        assert change["addresses"] == ["10.98.0.3/24"]
        assert (change["what"], change["planned"]) == ("switch, new_address=true", True)


def test_a_network_without_a_second_address_is_refused_before_the_start(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(HANDOVER.read_text())
    argv: list[str | Path] = ["emulate", scenario, "--terminal", "none", "--gateway", "none"]
    for addressed, named in (
        ([], "--terminal-address"),
        (["--terminal-address", "10.0.0.1/30", "--gateway-address", "10.0.0.2/30"], "10.0.0.1/30"),
    ):
        done = bentpipe(*argv, *addressed)
        assert done.returncode == 2
        assert "switch.0.new_address" in done.stderr
        assert named in done.stderr


Directions = Callable[[socket.socket, socket.socket], list[tuple[socket.socket, socket.socket]]]


@pytest.mark.parametrize(
    "directions",
    [
        pytest.param(lambda client, server: [(client, server), (server, client)], id="the client speaks first"),
        pytest.param(lambda client, server: [(server, client), (client, server)], id="the server speaks first"),
    ],
)
def test_a_tunnel_outlives_a_change_of_address(path: Topology, directions: Directions) -> None:
    """Its session moves: the flow that is open goes on, and nothing is opened anew."""
    assert path.emulator is not None
    control = path.emulator.wait_line("control: ").removeprefix("control: ")
    tunnel = start_bentpipe(path)
    with conversation(path) as (client, server):
        time.sleep(QUIET_S)
        switch = f"switch={host.REPOSITORY}/scenarios/bujari-leo.toml"
        done = bentpipe("link", "set", "--control", control, switch, "new_address=true")
        assert done.returncode == 0, done.stderr
        assert SATELLITE.near4 + "/" not in path.terminal.ip("address", "show", "sat0")
        began = time.monotonic()
        for sender, receiver in directions(client, server):
            sender.sendall(b"still there?")
            assert receiver.recv(12) == b"still there?"
        assert time.monotonic() - began < NOTICED_S
    assert "session lost" not in tunnel.terminal.log.read_text()


def test_a_download_through_the_tunnel_goes_on_after_a_change_of_address(path: Topology) -> None:
    """Only the gateway sends, to an address that is no more: the terminal has to notice by itself."""
    assert path.emulator is not None
    control = path.emulator.wait_line("control: ").removeprefix("control: ")
    tunnel = start_bentpipe(path)
    with conversation(path) as (client, server):
        content = incompressible("handover", 8_000_000)
        sending = threading.Thread(target=server.sendall, args=(content,))
        sending.start()
        received, switched = 0, False
        while received < len(content):
            got = client.recv(1 << 16)
            assert got
            received += len(got)
            if received > 2_000_000 and not switched:
                switched = True
                done = bentpipe("link", "set", "--control", control, "new_address=true")
                assert done.returncode == 0, done.stderr
        sending.join()
    assert "session lost" not in tunnel.terminal.log.read_text()
