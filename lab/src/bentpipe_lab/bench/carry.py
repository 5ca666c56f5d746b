"""What a path through some processes carries, and what that costs them: transfers by iperf3, and flows that idle."""

import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import PATIENCE_S, Process
from bentpipe_lab.net.topology import SERVER4, Topology

FLOW_SECONDS = 5
"""How long each throughput run lasts."""
ROUNDS = 3
FLOWS = (1, 16)
"""Connections side by side in a throughput run."""
IDLE_FLOWS = 1000
IPERF_PORT = 5201
SETTLE_S = 2.0


@dataclass(frozen=True)
class Carried:
    """What a throughput run moved, and what each end's process spent on it."""

    gigabytes: float
    seconds: float
    cpu_seconds: Sequence[float]

    @property
    def gbit_s(self) -> float:
        """Payload rate."""
        return self.gigabytes * 8 / self.seconds

    @property
    def cpu_s_per_gb(self) -> list[float]:
        """Processor seconds per gigabyte carried, by end."""
        return [spent / self.gigabytes for spent in self.cpu_seconds]


def count(flows: int) -> str:
    """As names of quantities have it."""
    return f"{flows} flow{'s' if flows > 1 else ''}"


def best(path: Topology, flows: int, target: tuple[str, int], ends: Sequence[Process]) -> Carried:
    """The fastest of some rounds: what else runs on the machine can only slow a round down."""
    return max((carry(path, flows, target, ends) for _ in range(ROUNDS)), key=lambda carried: carried.gbit_s)


def carry(path: Topology, flows: int, target: tuple[str, int], ends: Sequence[Process]) -> Carried:
    """Download through the ends as fast as it goes."""
    before = [process.tree_cpu_seconds() for process in ends]
    address, port = target
    result = iperf3(
        path.client.run(
            "iperf3", "--client", address, "--port", str(port), "--json", "--reverse",
            "--parallel", str(flows), "--time", str(FLOW_SECONDS),
        )
    )  # fmt: skip
    time.sleep(SETTLE_S)  # the ends finish what is on its way, and reap their children
    spent = [process.tree_cpu_seconds() - start for process, start in zip(ends, before, strict=True)]
    received = result["sum_received"]
    return Carried(received["bytes"] / 1e9, received["seconds"], spent)


def iperf3(printed: str) -> dict[str, Any]:
    """The end of what `iperf3 --json` has printed; raise with its own words when it failed."""
    result: dict[str, Any] = json.loads(printed)
    if "error" in result:
        raise ProgramError(f"iperf3: {result['error']}")
    end: dict[str, Any] = result["end"]
    return end


@contextmanager
def idle_flows(
    path: Topology, start: Callable[[int], Sequence[Process]], through: tuple[str, int] | None
) -> Iterator[Sequence[Process]]:
    """Flows that have exchanged a byte each way and are silent since, through what `start` starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * IDLE_FLOWS), hard))
    with ExitStack() as stack:
        listener = stack.enter_context(path.server.socket())
        listener.bind((SERVER4, 0))
        listener.listen(IDLE_FLOWS)
        listener.settimeout(PATIENCE_S)
        port = listener.getsockname()[1]
        ends = start(port)
        for _ in range(IDLE_FLOWS):
            client = stack.enter_context(path.client.socket())
            client.settimeout(PATIENCE_S)
            client.connect(through or (SERVER4, port))
            client.sendall(b"?")
            peer = stack.enter_context(listener.accept()[0])
            peer.settimeout(PATIENCE_S)
            peer.sendall(peer.recv(1))
            client.recv(1)
        time.sleep(SETTLE_S)
        yield ends


def until_listening(where: Namespace, port: int) -> None:
    """Wait until something listens at a TCP port."""
    deadline = time.monotonic() + PATIENCE_S
    while not where.run("ss", "-Hltn", "sport", f"= :{port}"):
        if time.monotonic() > deadline:
            raise ProgramError(f"nothing listens at port {port} in {where.name}")
        time.sleep(0.05)
