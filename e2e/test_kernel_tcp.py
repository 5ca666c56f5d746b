"""A plan's axes of the kernel's TCP: each node has what was chosen for it, as its kernel says of its connections."""

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bentpipe_lab.errors import MissingCapabilityError
from bentpipe_lab.net import host
from bentpipe_lab.net.tcp import KernelTcp
from bentpipe_lab.net.topology import GROUND, LAN, NODES, SATELLITE, SERVER4, Topology, topology

CHOSEN = {
    "tcp_controller": "cubic",
    "client.tcp_controller": "reno",
    "gateway.tcp_controller": "reno",
    "client.tcp_initial_window": 11,
    "terminal.tcp_initial_window": 22,
    "gateway.tcp_initial_window": 33,
    "server.tcp_initial_window": 44,
    "tcp_buffer": "6 MiB",
    "terminal.tcp_buffer": "1 MiB",
}
CONTROLLERS = {"client": "reno", "terminal": "cubic", "gateway": "reno", "server": "cubic"}
WINDOWS = {"client": 11, "terminal": 22, "gateway": 33, "server": 44}
BUFFERS = {"client": 6 << 20, "terminal": 1 << 20, "gateway": 6 << 20, "server": 6 << 20}
HOPS = [("client", "server", SERVER4), ("server", "client", LAN.far4), ("terminal", "gateway", SATELLITE.far4),
        ("gateway", "server", GROUND.far4), ("terminal", "client", LAN.far4)]  # fmt: skip


@contextmanager
def connected(path: Topology, near: str, far: str, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as stack:
        listener = stack.enter_context(getattr(path, far).socket())
        listener.bind((address, 0))
        listener.listen(1)
        opened = stack.enter_context(getattr(path, near).socket())
        for each in (listener, opened):
            each.settimeout(60)
        opened.connect(listener.getsockname())
        accepted, _ = listener.accept()
        yield opened, stack.enter_context(accepted)


def seen(path: Topology, node: str, end: socket.socket) -> tuple[str, int]:
    """Controller and window of a connection on which nothing was sent, as `ss` has them from the kernel."""
    _, port = end.getsockname()
    told = getattr(path, node).run("ss", "--tcp", "--info", "--numeric", "--no-header", "state", "established",
                                   f"sport = :{port}")  # fmt: skip
    (controller,) = re.findall(r"^\s+.*?\b(cubic|reno|bbr)\b", told, re.MULTILINE)
    (window,) = re.findall(r"\bcwnd:(\d+)", told)
    return str(controller), int(window)


def of_all_nodes(path: Topology) -> Mapping[str, set[tuple[str, int]]]:
    """What connections have at each node, of those that it opens and of those that it accepts."""
    found: dict[str, set[tuple[str, int]]] = {node: set() for node in NODES}
    for near, far, address in HOPS:
        with connected(path, near, far, address) as (opened, accepted):
            found[near].add(seen(path, near, opened))
            found[far].add(seen(path, far, accepted))
    return found


@pytest.mark.parametrize("scenario", [None, Path(__file__).parent / "short.toml"], ids=["cables", "emulated"])
def test_each_node_has_its_controller_its_initial_window_and_its_buffers(tmp_path: Path, scenario: Path | None) -> None:
    chosen = KernelTcp.of(CHOSEN)
    with (
        chosen.allowed(),
        topology(tmp_path, scenario, congestion_control=chosen.controller(), web_server=False) as path,
    ):
        assert of_all_nodes(path) == {node: {("cubic", 10)} for node in NODES}
        chosen.apply(path)
        assert of_all_nodes(path) == {node: {(CONTROLLERS[node], WINDOWS[node])} for node in NODES}
        for node in NODES:
            for name in ("tcp_rmem", "tcp_wmem"):
                assert getattr(path, node).read_sysctl(f"net.ipv4.{name}").split()[2] == str(BUFFERS[node])


def test_one_window_for_all_is_each_nodes(tmp_path: Path) -> None:
    with topology(tmp_path, web_server=False) as path:
        KernelTcp.of({"tcp_initial_window": 20}).apply(path)
        assert {window for each in of_all_nodes(path).values() for _, window in each} == {20}


def test_a_controller_that_the_kernel_does_not_have_is_told() -> None:
    with (
        pytest.raises(MissingCapabilityError, match=r"no TCP no-such.*`modprobe tcp_no-such`"),
        KernelTcp.of({"server.tcp_controller": "no-such"}).allowed(),
    ):
        pass
    assert "no-such" not in host.ALLOWED_CONTROL.read_text()
