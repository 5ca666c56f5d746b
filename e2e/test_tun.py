"""All traffic of the terminal's own machine, by a network interface and a default route.

The terminal's namespace is the machine: its programs know nothing of the tunnel. The path is of plain cables.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import GROUND, LAN, SATELLITE, SERVER4, SERVER6, Topology, topology
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe, start_bentpipe
from conversation import PATIENCE_S, Server, connect, eventually
from datagrams import ask, open_socket, peer
from dish_side import capture, captured
from test_transparent import NOBODY, doctor

SERVERS = (SERVER4, SERVER6)
INTERFACE = "bentpipe0"
DEPLOY = Path(__file__).parents[1] / "deploy"
ROUTER4, ROUTER6 = SATELLITE.far4, SATELLITE.far6
"""The dish's router, which the machine's name server would be."""
LISTS = (("rule",), ("route", "show", "table", "all"))
OUTSIDE = (
    f"(ip or ip6) and not udp port {GATEWAY_PORT} and not net fe80::/10 and not net ff00::/8"
    f" and not (icmp6 and ip6[40] >= 133 and ip6[40] <= 136) and not (icmp[0] == 3 and icmp[28:2] == {GATEWAY_PORT})"
)
"""What is not of the tunnel, nor of the cable itself (RFC 4861), nor tells the gateway that the terminal is gone."""


def run(where: Namespace, *words: str) -> str:
    """What a program prints, also one that fails."""
    return subprocess.run(where.command(list(words)), capture_output=True, text=True, check=False).stdout


def pings(where: Namespace, address: str) -> bool:
    """Whether an echo request is answered."""
    return " 0% packet loss" in run(where, "ping", "-n", "-c", "1", "-W", "2", address)


def is_refused(client: socket.socket) -> bool:
    """Whether a datagram is refused; it, and the answer, may be lost."""
    try:
        client.send(b"?")
        client.recv(100)
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        pass
    return False


def source(path: Topology, where: Namespace, address: str) -> str | None:
    """Where a connection to the server comes from, as the server sees it; none if it is not made in time."""
    server = Server(path.server, address)
    try:
        with where.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
            client.settimeout(1)
            try:
                client.connect(server.address)
                # One to whom a terminal that was killed has left its sockets, for some milliseconds, resets it.
                arrived, _, _ = select.select([server.socket, client], [], [], PATIENCE_S)
                return str(server.accept().getpeername()[0]) if server.socket in arrived else None
            except OSError:
                return None
    finally:
        server.close()


def names(where: Namespace, at: str, *options: str) -> str:
    """The address of the server's name, asked of a name server."""
    return run(where, "dig", f"@{at}", "+short", "+tries=1", "+timeout=3", *options, NAME).strip()


def configure(tunnel: Bentpipe, *, lan: bool) -> None:
    """Take this machine's own traffic, and a LAN's if asked to; the gateway carries pings."""
    tunnel.terminal.stop()
    tunnel.gateway.stop()
    release(tunnel)
    with tunnel.gateway_config.open("a") as file:
        file.write('\n[ip]\nnetworks = ["10.88.0.0/24", "fd88::/64"]\n\n[policy]\nip = ["icmp"]\n')
    text = tunnel.terminal_config.read_text()
    if lan:
        text += "\n[ingress.tun]\n"
    else:
        text = text.replace('interfaces = ["lan0"]\n', "")
    tunnel.terminal_config.write_text(text)
    tunnel.start_gateway()


def start(tunnel: Bentpipe) -> Process:
    """Start the terminal with `--tun`; its session is up when this returns."""
    words: list[str | Path] = [host.binary(), "terminal", "--tun", "--config", tunnel.terminal_config.absolute()]
    tunnel.terminal = tunnel.path.start("terminal", tunnel.path.terminal, words)
    tunnel.terminal.wait_line("session: up")
    eventually(lambda: pings(tunnel.path.terminal, SERVER4), "pings go through the tunnel")
    return tunnel.terminal


def release(tunnel: Bentpipe) -> None:
    """Let pass what a terminal has left held back."""
    tunnel.path.terminal.run(host.binary(), "terminal", "release", "--tun", "--config", tunnel.terminal_config)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Topology]:
    """A path of plain cables."""
    with topology(tmp_path) as path:
        yield path


def outside(path: Topology, name: str) -> Process:
    """Print what goes between the machine and the dish's router beside the tunnel."""
    return capture(path, name, OUTSIDE)


def seen(capture: Process, kind: str) -> bool:
    """Whether a capture has printed it."""
    return kind in capture.out.read_text()


def send_everything(path: Topology) -> None:
    """What programs send, to each server: TCP, UDP, DNS, QUIC, pings; DNS to the dish's router as well."""
    for address in SERVERS:
        source(path, path.terminal, address)
        for to, port in ((address, 9), (address, 443), (address, 53), (ROUTER6 if ":" in address else ROUTER4, 53)):
            with open_socket(path.terminal, to) as client:
                for size in (20, 3000):
                    try:
                        client.sendto(bytes(size), (to, port))
                    except OSError:  # No way out, or nobody there.
                        continue
        pings(path.terminal, address)


def test_programs_of_the_machine_go_through_the_tunnel_and_nothing_leaves_beside_it(bare: Topology) -> None:
    path, machine = bare, bare.terminal
    without = outside(path, "without")
    send_everything(path)
    for kind in ("Flags [S]", "UDP", "ICMP echo", "ICMP6, echo", f"> {ROUTER4}.53"):
        eventually(partial(seen, without, kind), f"without the tunnel, {kind} is seen outside")
    without.stop()

    tunnel = start_bentpipe(path)
    configure(tunnel, lan=False)
    terminal = start(tunnel)
    during = outside(path, "during")

    for address, gateway in ((SERVER4, GROUND.near4), (SERVER6, GROUND.near6)):
        assert source(path, machine, address) == gateway
        with peer(path.server, address) as echo, open_socket(machine, address) as client:
            client.connect(echo.address)
            for size in (0, 1200, 3000):
                ask(client, bytes([7]) * size)
            assert {host for host, _ in echo.clients} == {gateway}
        assert pings(machine, address)
        host_part = f"[{address}]" if ":" in address else address
        fetched = run(machine, "curl", "-s", "-o", "/dev/null", "-w", "%{size_download}", f"http://{host_part}/2MB")
        assert fetched == "2000000"
    # A port where nobody listens: refused, as without a tunnel.
    with open_socket(machine, SERVER4) as client:
        client.connect((SERVER4, 9))
        client.settimeout(1)
        eventually(partial(is_refused, client), "what nobody listens for is refused")
    # Any name server's questions, the dish's router included.
    for at in (SERVER4, SERVER6, ROUTER4, ROUTER6):
        assert names(machine, at) == SERVER4
    assert names(machine, ROUTER4, "+tcp") == SERVER4

    told = json.loads(machine.run(host.binary(), "status", "--json", "--config", tunnel.terminal_config.absolute()))
    assert told["tun"]["interface"] == INTERFACE
    assert any(address.startswith("10.88.0.") for address in told["tun"]["addresses"])
    assert {check["state"] for check in doctor(path, tunnel, "--tun") if check["needed_for"] == "terminal (tun)"} == {
        "ok"
    }

    send_everything(path)
    terminal.kill()
    send_everything(path)
    assert source(path, machine, SERVER4) is None
    start(tunnel)
    send_everything(path)
    assert tunnel.terminal.stop() == 0
    send_everything(path)
    assert source(path, machine, SERVER6) is None
    assert captured(during) == ""

    release(tunnel)
    assert source(path, machine, SERVER4) == SATELLITE.near4
    assert source(path, machine, SERVER6) == SATELLITE.near6
    left = "".join(machine.ip(*family, *words) for family in ((), ("-6",)) for words in LISTS)
    for trace in ("lookup 1651", "table 1651", INTERFACE):
        assert trace not in left, left


def test_a_lan_is_taken_beside_its_router_and_servers_answer_who_comes_to_them_outside(bare: Topology) -> None:
    path, machine = bare, bare.terminal
    tunnel = start_bentpipe(path)
    configure(tunnel, lan=True)
    start(tunnel)
    for address, gateway in ((SERVER4, GROUND.near4), (SERVER6, GROUND.near6)):
        for where in (machine, path.client):
            assert source(path, where, address) == gateway
            assert pings(where, address)
    for where, address in ((machine, SATELLITE.near4), (machine, SATELLITE.near6), (path.client, LAN.far4)):
        server = Server(where, address)
        with connect(path.server, server.address) as visitor:
            visitor.sendall(b"hello")
            with server.accept() as answering:
                assert answering.recv(10) == b"hello"
                answering.sendall(b"welcome")
            assert visitor.recv(10) == b"welcome"
        server.close()
    # A server that speaks first is waited for: one that refuses is refused to the machine's own programs too.
    with pytest.raises(ConnectionRefusedError):
        connect(machine, (SERVER4, 22))
    tunnel.terminal.kill()
    # A program that it was just starting has what it had open, for some milliseconds.
    eventually(lambda: INTERFACE not in run(machine, "ip", "link"), "its interface is gone with it")
    for where in (machine, path.client):
        for address in SERVERS:
            assert source(path, where, address) is None
            assert not pings(where, address)


def test_ipv6_that_is_switched_off_and_on_is_taken_again(bare: Topology) -> None:
    """The kernel forgets all routes of IPv6 meanwhile, the terminal's included."""
    path, machine = bare, bare.terminal
    tunnel = start_bentpipe(path)
    configure(tunnel, lan=False)
    start(tunnel)
    for off in (1, 0):
        machine.sysctl(net__ipv6__conf__all__disable_ipv6=off)
    machine.ip("-6", "address", "add", f"{SATELLITE.near6}/64", "dev", "sat0", "nodad")
    machine.ip("-6", "route", "replace", "default", "via", ROUTER6, "dev", "sat0")
    eventually(lambda: source(path, machine, SERVER6) == GROUND.near6, "connections over IPv6 are taken")
    assert source(path, machine, SERVER4) == GROUND.near4


def test_what_the_units_give_suffices(bare: Topology) -> None:
    """Users without rights but the capabilities of the units, a read-only /proc/sys, and /dev/net/tun."""
    path = bare
    tunnel = start_bentpipe(path)
    configure(tunnel, lan=True)
    tunnel.gateway.stop()
    with confined(tunnel, "gateway") as gateway, confined(tunnel, "terminal") as terminal:
        terminal.wait_line("session: up")
        for address, seen in ((SERVER4, GROUND.near4), (SERVER6, GROUND.near6)):
            eventually(partial(pings, path.client, address), "pings go through the tunnel")
            assert pings(path.terminal, address)
            assert source(path, path.terminal, address) == seen
        assert terminal.stop() == 0
        assert gateway.stop() == 0


@contextmanager
def confined(tunnel: Bentpipe, role: str) -> Iterator[Process]:
    """An end that runs as its unit and the drop-in for IP packets say, as nobody; it listens when the block begins."""
    units = [DEPLOY / f"bentpipe-{role}.service", DEPLOY / f"{role}-ip.conf"]
    lines = [line for unit in units if unit.exists() for line in unit.read_text().splitlines()]
    assert "DeviceAllow=/dev/net/tun rw" in lines
    given = [line.partition("=")[2] for line in lines if line.startswith("AmbientCapabilities=")]
    capabilities = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in " ".join(given).split())
    config = tunnel.gateway_config if role == "gateway" else tunnel.terminal_config
    where = tunnel.path.gateway if role == "gateway" else tunnel.path.terminal
    with tempfile.TemporaryDirectory(prefix=tunnel.path.run) as name:
        home = Path(name)
        shutil.copytree(config.parent, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
        binary = home / "bentpipe"
        shutil.copyfile(host.binary(), binary)
        binary.chmod(0o755)
        for file in [home, *home.iterdir()]:
            os.chown(file, NOBODY, NOBODY)
        # udev's rule for /dev/net/tun has mode 0666.
        machine = (
            "mount -t tmpfs net /dev/net && mknod -m 0666 /dev/net/tun c 10 200 && mount --bind /proc/sys /proc/sys"
        )
        machine += ' && mount -o remount,bind,ro /proc/sys && exec "$@"'
        words: list[str | Path] = ["unshare", "--mount", "sh", "-c", machine, "sh", "setpriv", f"--reuid={NOBODY}"]
        words += [f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", f"--bounding-set=-all{capabilities}"]
        words += [f"--inh-caps=-all{capabilities}", f"--ambient-caps=-all{capabilities}"]
        started = tunnel.path.start(f"confined-{role}", where, [*words, binary, role, "--config", home / config.name])
        started.wait_line("ready")
        yield started
