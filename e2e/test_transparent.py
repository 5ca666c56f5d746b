"""What transparent ingress takes and what it leaves alone, and what becomes of it when the terminal is gone.

The path is of plain cables: nothing here depends on a satellite.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bentpipe_lab.net import host, netns
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import LAN, SERVER4, SERVER6, Topology, topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import Server, connect, conversation, eventually
from dish_side import capture, captured

NOBODY = 65534
HELD_S = 2.5
"""Long enough for two retransmissions of a first packet."""
DMZ4 = "11.77.9.2"
"""A public address in a network that the terminal's machine is connected to."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path) as built:
        yield built


def passes(path: Topology, address: str = SERVER4) -> bool:
    """Whether a new connection of the client reaches the server by itself, outside any tunnel."""
    server = Server(path.server, address)
    try:
        with path.client.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
            client.settimeout(HELD_S)
            try:
                client.connect(server.address)
            except OSError:
                return False
            # Answered, but by whom? What has not come to the server has not passed.
            server.socket.settimeout(HELD_S)
            try:
                peer = server.accept()
            except TimeoutError:
                return False
            return bool(peer.getpeername()[0] in (LAN.far4, LAN.far6))
    finally:
        server.close()


def works(tunnel: Bentpipe) -> bool:
    """Whether a download through the tunnel succeeds now."""
    return curl.download(tunnel.path, "2MB").verdict is Verdict.OK


def configure(tunnel: Bentpipe, line: str) -> None:
    """Add a line to the table of transparent ingress."""
    text = tunnel.terminal_config.read_text()
    tunnel.terminal_config.write_text(text.replace('interfaces = ["lan0"]\n', f'interfaces = ["lan0"]\n{line}\n'))


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_nothing_passes_by_the_tunnel_after_a_crash_or_a_stop_until_it_is_let_go(path: Topology, address: str) -> None:
    assert passes(path, address), "without the tunnel, the path routes"
    tunnel = start_bentpipe(path)
    outside = capture(path, "outside", "tcp")
    tunnel.terminal.kill()
    assert not passes(path, address)
    assert captured(outside) == "", "not even a first packet"
    tunnel.start_terminal()
    assert works(tunnel)
    assert tunnel.terminal.stop() == 0
    assert not passes(path, address)
    path.terminal.run(host.binary(), "terminal", "release", "--config", tunnel.terminal_config)
    assert passes(path, address)


def test_what_is_under_way_at_a_crash_does_not_go_on_outside(path: Topology) -> None:
    """The rest of a connection is not sent to the server by itself, whatever the client still sends."""
    tunnel = start_bentpipe(path)
    outside = capture(path, "outside", "tcp")
    with conversation(path) as (client, _):
        client.setblocking(False)
        tunnel.terminal.kill()
        for _ in range(50):
            try:
                client.send(b"secret" * 100)
            except OSError:
                break
    assert not passes(path)
    assert captured(outside) == ""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_does_not_mean_the_end_does_not_end_it(path: Topology, number: signal.Signals) -> None:
    tunnel = start_bentpipe(path)
    with conversation(path) as (client, peer):
        tunnel.terminal.signal(number)
        client.sendall(b"still there?")
        assert peer.recv(100) == b"still there?"
    assert tunnel.terminal.exit_code is None
    assert works(tunnel)


def test_failing_open_is_a_stated_option(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    configure(tunnel, 'fail = "open"')
    tunnel.start_terminal()
    assert works(tunnel)
    tunnel.terminal.kill()
    assert passes(path)


def test_after_a_stop_nothing_passes_until_it_is_released(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    assert tunnel.terminal.stop() == 0
    assert not passes(path)
    assert "bentpipe terminal release" in tunnel.terminal.log.read_text()
    path.terminal.run(host.binary(), "terminal", "release", "--config", tunnel.terminal_config)
    assert passes(path)


def test_passing_after_a_stop_is_a_stated_option(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    assert tunnel.terminal.stop() == 0
    configure(tunnel, 'after_stop = "release"')
    tunnel.start_terminal()
    assert tunnel.terminal.stop() == 0
    assert passes(path)


def test_rules_that_another_program_sweeps_away_are_put_back(path: Topology) -> None:
    """As `systemctl reload nftables` does."""
    tunnel = start_bentpipe(path)
    path.terminal.run("nft", "flush", "ruleset")
    eventually(lambda: "bentpipe_" in path.terminal.run("nft", "list", "tables"), "the rules are back")
    assert works(tunnel)


@pytest.mark.parametrize(
    "change", ["flush table inet {0}", "flush chain inet {0} take", "insert rule inet {0} ingress accept"]
)
def test_rules_that_another_program_changes_are_put_back(path: Topology, change: str) -> None:
    start_bentpipe(path)
    before = path.terminal.run("nft", "--stateless", "--terse", "list", "ruleset")
    (table,) = re.findall(r"table inet (bentpipe_\d+)", before)
    path.terminal.run("nft", *change.format(table).split())
    eventually(
        lambda: path.terminal.run("nft", "--stateless", "--terse", "list", "ruleset") == before, "they are as before"
    )
    assert not passes(path)


def test_connections_from_before_the_start_go_on(path: Topology) -> None:
    with conversation(path) as (client, peer):
        tunnel = start_bentpipe(path)
        client.sendall(b"as before")
        assert peer.recv(100) == b"as before"
        peer.sendall(b"both ways")
        assert client.recv(100) == b"both ways"
    assert works(tunnel)


def test_connections_to_servers_of_the_lan_are_left_alone(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    inbound = Server(path.client, LAN.far4)
    with connect(path.server, inbound.address) as visitor:
        peer = inbound.accept()
        visitor.sendall(b"hello")
        assert peer.recv(10) == b"hello"
        peer.sendall(b"welcome")
        assert visitor.recv(10) == b"welcome"
    inbound.close()
    assert works(tunnel)


def test_lan_to_lan_is_left_alone(path: Topology) -> None:
    """Another network of the same router, with public addresses, which the gateway could not even reach."""
    dmz = Namespace(f"{path.run}-dmz")
    dmz.create()
    try:
        netns.veth(path.terminal, "dmz0", dmz, "dmz0")
        path.terminal.ip("address", "add", "11.77.9.1/24", "dev", "dmz0")
        dmz.ip("address", "add", f"{DMZ4}/24", "dev", "dmz0")
        dmz.ip("route", "add", "default", "via", "11.77.9.1")
        start_bentpipe(path)
        server = Server(dmz, DMZ4)
        with connect(path.client, server.address):
            peer = server.accept()
            assert peer.getpeername()[0] == LAN.far4
        server.close()
    finally:
        dmz.delete()


def test_private_destinations_are_left_alone_by_default(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    text = tunnel.terminal_config.read_text()
    tunnel.terminal_config.write_text(text.replace("leave_private = false\n", ""))
    tunnel.start_terminal()
    assert passes(path), "the lab's server has a private address"


def test_without_ipv6_the_terminal_works_and_doctor_tells(path: Topology) -> None:
    path.terminal.sysctl(net__ipv6__conf__all__disable_ipv6=1)
    tunnel = start_bentpipe(path)
    assert works(tunnel)
    (told,) = (check for check in doctor(path, tunnel) if check["name"] == "IPv6")
    assert told["state"] == "worse"
    assert "disable_ipv6" in str(told["found"])


def test_a_firewall_in_the_way_is_told_with_its_remedy(path: Topology, tmp_path: Path) -> None:
    rules = tmp_path / "input.nft"
    rules.write_text(
        "table inet filter {\nchain input {\ntype filter hook input priority 0; policy drop;\n"
        'ct state established,related accept\niifname { "lo", "sat0" } accept\nmeta l4proto { icmp, ipv6-icmp } '
        "accept\n"
        "}\n}\n"
    )
    path.terminal.run("nft", "-f", rules)
    tunnel = start_bentpipe(path)
    (told,) = (check for check in doctor(path, tunnel) if check["name"] == "firewall")
    assert told["state"] == "missing"
    remedy = str(told["remedy"]).split("`")
    (command,) = (word for word in remedy if word.startswith("nft insert rule"))
    assert command in tunnel.terminal.log.read_text()
    assert not passes(path), "what the firewall drops does not go outside"
    path.terminal.run(*command.split())
    assert works(tunnel)
    (told,) = (check for check in doctor(path, tunnel) if check["name"] == "firewall")
    assert told["state"] == "ok"


def test_two_capabilities_suffice(path: Topology) -> None:
    """A user who is nobody, and a binary with CAP_NET_ADMIN, and with a resolver on port 53 CAP_NET_BIND_SERVICE."""
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    configure(tunnel, 'after_stop = "release"')
    with unprivileged(tunnel) as terminal:
        terminal.wait_line("session: up")
        assert works(tunnel)
        assert terminal.stop() == 0
    assert passes(path)
    assert "bentpipe_" not in path.terminal.run("nft", "list", "tables")


@contextmanager
def unprivileged(tunnel: Bentpipe) -> Iterator[Process]:
    """A terminal that runs as nobody, from a binary that has two capabilities and nothing else."""
    # Nobody may not enter the test's own directory.
    with tempfile.TemporaryDirectory(prefix=tunnel.path.run) as name:
        home = Path(name)
        shutil.copytree(
            tunnel.terminal_config.parent, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )
        binary = home / "bentpipe"
        shutil.copyfile(host.binary(), binary)
        binary.chmod(0o755)
        for file in [home, *home.iterdir()]:
            os.chown(file, NOBODY, NOBODY)
        netns.checked(["setcap", "cap_net_admin,cap_net_bind_service+ep", str(binary)])
        words: list[str | Path] = [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "--inh-caps=-all",
            binary,
        ]
        words += ["terminal", "--config", home / "terminal.toml"]
        yield tunnel.path.start("nobody", tunnel.path.terminal, words)


def doctor(path: Topology, tunnel: Bentpipe, *options: str) -> list[dict[str, object]]:
    """What doctor finds in the terminal's namespace."""
    words: list[str | Path] = [
        host.binary(),
        "doctor",
        "--json",
        *options,
        "--config",
        tunnel.terminal_config.absolute(),
    ]
    done = subprocess.run(path.terminal.command(words), capture_output=True, text=True, check=False)
    checks: list[dict[str, object]] = json.loads(done.stdout)
    return checks
