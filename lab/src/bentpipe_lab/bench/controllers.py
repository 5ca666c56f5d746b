"""What the default controller costs over plain cables, where processors are the limit, beside CUBIC."""

from collections import defaultdict
from pathlib import Path
from statistics import median

from bentpipe_lab.bench.carry import FLOWS, IPERF_PORT, Carried, carry, count, until_listening
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.net.topology import SERVER4, topology
from bentpipe_lab.systems.tunnel import Transport, start_bentpipe

DEFAULT = None
PEER = "cubic"
ROUNDS = 6
LEAST_THROUGHPUT = 0.95
"""Of the peer's."""
MOST_CPU = 1.05
"""Of the peer's."""


def controller_cost(directory: Path) -> list[Quantity]:
    """throughput and processor time of the default controller over plain cables, beside CUBIC's in the same tunnel."""
    carried: dict[tuple[str | None, int], list[Carried]] = defaultdict(list)
    # In turns, each first in every other round, so that what else the machine does meets both.
    for round_ in range(ROUNDS):
        for controller in (DEFAULT, PEER) if round_ % 2 == 0 else (PEER, DEFAULT):
            where = directory / f"{controller or 'default'}-{round_}"
            with topology(where, congestion_control=CONTROLLER, web_server=False) as path:
                path.start("iperf3", path.server, ["iperf3", "--server"])
                until_listening(path.server, IPERF_PORT)
                running = start_bentpipe(path, Transport(controller=controller))
                ends = (running.terminal, running.gateway)
                for flows in FLOWS:
                    carried[controller, flows].append(carry(path, flows, (SERVER4, IPERF_PORT), ends))
    quantities: list[Quantity] = []
    for flows in FLOWS:
        rate, their_rate = (median(one.gbit_s for one in carried[who, flows]) for who in (DEFAULT, PEER))
        cpu, their_cpu = (median(sum(one.cpu_s_per_gb) for one in carried[who, flows]) for who in (DEFAULT, PEER))
        least, most = LEAST_THROUGHPUT * their_rate, MOST_CPU * their_cpu
        name = f"controller throughput, {count(flows)}"
        quantities.append(Quantity(name, rate, "Gbit/s", PEER, their_rate, least=least))
        name = f"controller CPU of both ends, {count(flows)}"
        quantities.append(Quantity(name, cpu, "s/GB", PEER, their_cpu, most=most))
    return quantities
