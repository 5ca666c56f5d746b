"""Real programs through the tunnel: what arrives is what was sent."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bentpipe_lab.net.topology import GROUND, SERVER6
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.programs import curl
from conversation import Server, connect


@pytest.mark.parametrize("workload", [name for name in WORKLOADS.names() if WORKLOADS[name].demo_runs])
def test_every_workload_of_the_demo(tunnel: Bentpipe, workload: str) -> None:
    outcome = WORKLOADS[workload].run(tunnel.path)
    assert outcome.verdict is Verdict.OK, outcome.detail


def test_ipv6(tunnel: Bentpipe) -> None:
    wanted = tunnel.path.origin.objects["2MB"]
    target = tunnel.path.directory / "ipv6"
    tunnel.path.client.run("curl", "-sS", "--fail", "-g", "-o", target, f"http://[{SERVER6}]/{wanted.path}")
    assert curl.sha256(target) == wanted.sha256


def test_sixteen_downloads_at_once(tunnel: Bentpipe) -> None:
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda _: curl.download(tunnel.path, "2MB"), range(16)))
    assert {outcome.verdict for outcome in outcomes} == {Verdict.OK}, outcomes


def test_the_server_sees_the_gateway(tunnel: Bentpipe) -> None:
    """Everything else here would pass without a tunnel too: the path routes."""
    server = Server(tunnel.path.server)
    with connect(tunnel.path.client, server.address) as client:
        client.sendall(b"?")
        with server.accept() as peer:
            assert peer.getpeername()[0] == GROUND.near4
    server.close()
