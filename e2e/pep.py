"""`bentpipe tcp-pep` on the lab's path, in one box or in two."""

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import BLACKHOLE4, PRIVATE4, SATELLITE, UNREACHABLE4, Topology

SECOND_BOX = f"{SATELLITE.far4}:5991"
READY = "tcp-pep: "
NETWORKS = f"10.77.2.0/24,{BLACKHOLE4}/32,{UNREACHABLE4}/32,{PRIVATE4}/32,fd77:0:0:2::/64"
"""Where the servers are, private here."""
BOXES = pytest.mark.parametrize("boxes", ["integrated", "distributed"])


def start(path: Topology, boxes: str, *options: str) -> list[Process]:
    """Start the proxy in one box or in two, the client's last; `options` are the gateway's."""
    pep = (host.binary(), "tcp-pep")
    if boxes == "integrated":
        started = [path.start("pep", path.gateway, [*pep, "--interfaces", "sat0", *options])]
    else:
        listen = ("--listen", SECOND_BOX, "--from", f"{SATELLITE.near4}/32", "--allow", NETWORKS)
        via = ("--interfaces", "lan0", "--via", SECOND_BOX)
        started = [
            path.start("second", path.gateway, [*pep, *listen, *options]),
            path.start("first", path.terminal, [*pep, *via]),
        ]
    for process in started:
        process.wait_line(READY)
    return started
