"""The gateway reaches what its operator lists, and nothing private besides."""

import pytest

from bentpipe_lab.net.topology import LISTED, PRIVATE4, Topology
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe
from conversation import Server, assert_made_and_reset, connect, conversation

OWN_PUBLIC4 = "11.22.33.44"


def test_private_and_not_listed_is_a_reset(tunnel: Bentpipe) -> None:
    server = Server(tunnel.path.server, PRIVATE4)
    assert_made_and_reset(tunnel.path.client, server.address)
    server.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        server.accept()
    server.close()


def test_the_gateways_own_address_is_a_reset(path: Topology) -> None:
    """Public and not denied as such: it is refused because it is the gateway's own."""
    path.gateway.ip("address", "add", f"{OWN_PUBLIC4}/32", "dev", "lo")
    start_bentpipe(path)
    own = Server(path.gateway, OWN_PUBLIC4)
    assert_made_and_reset(path.client, own.address)
    own.close()


def test_an_address_that_the_gateway_gets_while_it_runs_is_its_own_at_once(path: Topology) -> None:
    start_bentpipe(path)
    server = Server(path.server)
    connect(path.client, server.address).close()
    for _ in range(20):
        path.gateway.ip("address", "add", f"{OWN_PUBLIC4}/32", "dev", "lo")
        own = Server(path.gateway, OWN_PUBLIC4)
        own.socket.settimeout(0.2)
        assert_made_and_reset(path.client, own.address)
        with pytest.raises(TimeoutError):
            own.accept()
        own.close()
        path.gateway.ip("address", "delete", f"{OWN_PUBLIC4}/32", "dev", "lo")
    server.close()


def test_private_and_listed_is_reached(path: Topology) -> None:
    start_bentpipe(path, allow=[*LISTED, f"{PRIVATE4}/32"])
    with conversation(path, PRIVATE4):
        pass
