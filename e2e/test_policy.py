"""What a terminal may do, changed while the gateway runs: the address that origins see, and the volume of a month."""

import json
import signal

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import SERVER4
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import Server, assert_made_and_reset, connect, eventually

EGRESS4 = "10.77.2.77"


def seen_from(tunnel: Bentpipe) -> str:
    """The address that an origin sees a connection of the client's come from."""
    origin = Server(tunnel.path.server)
    try:
        with connect(tunnel.path.client, origin.address), origin.accept() as peer:
            address: str = peer.getpeername()[0]
            return address
    finally:
        origin.close()


def reload(tunnel: Bentpipe, tables: str) -> None:
    """Give the gateway further tables, in force from SIGHUP on."""
    before = tunnel.gateway_config.with_suffix(".first")
    if not before.exists():
        before.write_text(tunnel.gateway_config.read_text())
    tunnel.gateway_config.write_text(f"{before.read_text()}\n{tables}")
    reloads = tunnel.gateway.log.read_text().count("reloaded")
    tunnel.gateway.signal(signal.SIGHUP)
    eventually(lambda: tunnel.gateway.log.read_text().count("reloaded") > reloads, "the gateway has read it")


def test_the_egress_address_and_the_monthly_volume_change_while_it_runs(own_tunnel: Bentpipe) -> None:
    path = own_tunnel.path
    config = own_tunnel.gateway_config.absolute()
    (terminal,) = json.loads(
        path.gateway.run(host.binary(), "gateway", "terminals", "list", "--json", "--config", config)
    )
    path.gateway.run(host.binary(), "gateway", "terminals", "name", "--config", config, terminal["key"], "boat")

    before = seen_from(own_tunnel)
    path.gateway.ip("address", "add", f"{EGRESS4}/32", "dev", "gnd0")
    path.server.ip("route", "replace", f"{EGRESS4}/32", "dev", "gnd0")
    reload(own_tunnel, f'[policy]\negress_address = ["{EGRESS4}"]\n')
    assert before != EGRESS4
    assert seen_from(own_tunnel) == EGRESS4

    reload(own_tunnel, '[terminal.boat]\nmonthly_volume = "3 MB"\n')
    assert seen_from(own_tunnel) == before
    assert curl.download(path, "2MB").verdict is Verdict.OK
    assert curl.download(path, "2MB").verdict is not Verdict.OK, "the volume is used up in the middle of it"
    assert_made_and_reset(path.client, (SERVER4, 80))
    assert own_tunnel.gateway.stop() == 0
    own_tunnel.start_gateway()
    eventually(lambda: own_tunnel.terminal.log.read_text().count("session is up") > 1, "the session is back")
    assert_made_and_reset(path.client, (SERVER4, 80))
    reload(own_tunnel, '[terminal.boat]\nmonthly_volume = "1 GB"\n')
    assert curl.download(path, "2MB").verdict is Verdict.OK
