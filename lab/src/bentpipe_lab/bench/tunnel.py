"""Speed and memory, beside a peer measured in the same run; writes `summary.json`.

The tunnel runs over plain cables, so that only processors limit it, beside a relay that does the same work
without encryption: two socat, one in each place, from kernel TCP to kernel TCP. The emulator is loaded by
iperf3 with 1500-byte packets both ways at once, while it is confined to one processor core; `bench_link` holds
it against its limits from outside.
"""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bentpipe_lab.bench.carry import (
    FLOWS,
    IDLE_FLOWS,
    IPERF_PORT,
    best,
    count,
    idle_flows,
    iperf3,
    until_listening,
)
from bentpipe_lab.bench.controllers import controller_cost
from bentpipe_lab.bench.link import emulator_outside
from bentpipe_lab.bench.products import products, table
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.bench.quic import quic_pep_memory, quic_speed
from bentpipe_lab.bench.trace import traces
from bentpipe_lab.net import host, interrupt
from bentpipe_lab.net.content import MIB
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.packet import PACKET, UDP_PAYLOAD
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.net.topology import LAN, SATELLITE, SERVER4, Topology, topology
from bentpipe_lab.systems.tunnel import Transport, start_bentpipe

PEER = "socat"
RELAY_PORT = 8080
EMULATOR_MBIT_S = 200
EMULATOR_SECONDS = 10
EMULATOR_SCENARIO = """\
name = "bench"
title = "Room for 200 Mbit/s each way"
source = "chosen for the benchmark"
seed = 1

[forward]
rate = "250 Mbit/s"
delay = "20 ms"
loss = "0 %"
queue = "1250 kB"

[return]
rate = "250 Mbit/s"
delay = "20 ms"
loss = "0 %"
queue = "1250 kB"
"""


def bench(out: Path, console: Console) -> int:
    """Measure everything, print the table, write the summary."""
    host.require(("ip", "nsenter", "socat", "iperf3", "taskset", "tcpdump"))
    host.clean_leftovers()
    out.mkdir(parents=True, exist_ok=True)
    quantities: list[Quantity] = []
    with interrupt.as_exception(), host.allowed_congestion_control(CONTROLLER) as note:
        if note:
            console.print(note, highlight=False)
        for measure in (
            tunnel_speed, controller_cost, tunnel_memory, quic_speed, quic_pep_memory, emulator, emulator_outside,
            traces,
        ):  # fmt: skip
            console.print(f"measuring: {measure.__doc__}", highlight=False)
            quantities += measure(out / measure.__name__)
        (out / "summary.json").write_text(
            json.dumps([quantity.as_record() for quantity in quantities], indent=2) + "\n"
        )
        console.print(f"measuring: {products.__doc__}", highlight=False)
        beside = products(out / "products")
    console.print(_table(quantities))
    console.print(table(beside))
    console.print(f"{os.cpu_count()} CPUs, Linux {platform.release()}; {out / 'summary.json'}", highlight=False)
    return 0


def tunnel_speed(directory: Path) -> list[Quantity]:
    """throughput and processor time of the tunnel over plain cables, beside a relay of kernel TCP."""
    quantities: list[Quantity] = []
    with topology(directory, congestion_control=CONTROLLER, web_server=False) as path:
        path.start("iperf3", path.server, ["iperf3", "--server"])
        until_listening(path.server, IPERF_PORT)
        relay = _start_relay(path, IPERF_PORT)
        relayed = {flows: best(path, flows, (LAN.near4, RELAY_PORT), relay) for flows in FLOWS}
        running = start_bentpipe(path, Transport())
        ends = (running.terminal, running.gateway)
        tunnelled = {flows: best(path, flows, (SERVER4, IPERF_PORT), ends) for flows in FLOWS}
    for flows in FLOWS:
        ours, peer = tunnelled[flows], relayed[flows]
        quantities.append(Quantity(f"tunnel throughput, {count(flows)}", ours.gbit_s, "Gbit/s", PEER, peer.gbit_s))
        quantities += [
            Quantity(f"{end} CPU, {count(flows)}", mine, "s/GB", PEER, theirs)
            for end, mine, theirs in zip(("terminal", "gateway"), ours.cpu_s_per_gb, peer.cpu_s_per_gb, strict=True)
        ]
    return quantities


def tunnel_memory(directory: Path) -> list[Quantity]:
    """memory of the tunnel's ends with idle flows, beside a relay of kernel TCP."""
    with topology(directory, congestion_control=CONTROLLER, web_server=False) as path:
        with idle_flows(path, lambda port: _start_relay(path, port), (LAN.near4, RELAY_PORT)) as relay:
            theirs = [process.tree_bytes() for process in relay]
        running = start_bentpipe(path, Transport())
        with idle_flows(path, lambda _: (running.terminal, running.gateway), None) as ends:
            mine = [process.resident_bytes() for process in ends]
    return [
        Quantity(f"{end} memory, {IDLE_FLOWS} idle flows", ours / MIB, "MiB", PEER, peer / MIB)
        for end, ours, peer in zip(("terminal", "gateway"), mine, theirs, strict=True)
    ]


def emulator(directory: Path) -> list[Quantity]:
    """rate and lateness of the emulator on one core, loaded both ways by iperf3."""
    directory.mkdir(parents=True, exist_ok=True)
    scenario = directory / "bench.toml"
    scenario.write_text(EMULATOR_SCENARIO)
    with topology(directory, scenario, web_server=False) as path:
        assert path.emulator is not None
        for thread in Path(f"/proc/{path.emulator.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {0})
        elsewhere = ["taskset", "--cpu-list", f"1-{(os.cpu_count() or 2) - 1}"]
        path.start("iperf3", path.gateway, [*elsewhere, "iperf3", "--server"])
        until_listening(path.gateway, IPERF_PORT)
        began = path.emulator.cpu_seconds()
        result = iperf3(
            path.terminal.run(
                *elsewhere, "iperf3", "--client", SATELLITE.far4, "--json", "--udp", "--bidir",
                "--bitrate", f"{EMULATOR_MBIT_S * UDP_PAYLOAD / PACKET:.3f}M", "--length", str(UDP_PAYLOAD),
                "--time", str(EMULATOR_SECONDS),
            )
        )  # fmt: skip
        spent = path.emulator.cpu_seconds() - began
        certificate = path.end_emulation()
    assert certificate is not None
    (satellite,) = certificate.fields["links"]
    received = {"return": result["sum_received"], "forward": result["sum_received_bidir_reverse"]}
    quantities = [Quantity("emulator CPU", spent / EMULATOR_SECONDS, "cores")]
    for direction in satellite["directions"]:
        name, late = direction["name"], direction["lateness_us"]
        rate = received[name]["bits_per_second"] * PACKET / UDP_PAYLOAD / 1e6
        quantities.append(Quantity(f"emulator {name}, {PACKET}-byte packets", rate, "Mbit/s"))
        quantities.append(Quantity(f"emulator {name} loss", received[name]["lost_percent"], "%"))
        quantities += [
            Quantity(f"emulator {name} lateness {part}", late[part], "us") for part in ("p50", "p99", "p999")
        ]
    return quantities


def _start_relay(path: Topology, port: int) -> tuple[Process, Process]:
    """The same work without a tunnel: accept in the terminal's place, and again in the gateway's."""
    gateway = _socat("relay-gateway", path, path.gateway, (SERVER4, port))
    terminal = _socat("relay-terminal", path, path.terminal, (SATELLITE.far4, RELAY_PORT))
    return terminal, gateway


def _socat(name: str, path: Topology, where: Namespace, target: tuple[str, int]) -> Process:
    listen = f"TCP4-LISTEN:{RELAY_PORT},fork,reuseaddr,backlog=1024,nodelay"
    process = path.start(name, where, ["socat", "-b", "262144", listen, f"TCP4:{target[0]}:{target[1]},nodelay"])
    until_listening(where, RELAY_PORT)
    return process


def _table(quantities: Sequence[Quantity]) -> Table:
    table = Table(title="bench", title_justify="left", title_style="bold")
    table.add_column("what")
    for name in ("bentpipe", "unit", "beside", "ratio", "limit"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for quantity in quantities:
        ratio = quantity.as_record()["ratio"]
        peer = "" if quantity.peer_value is None else f"{quantity.peer_value:.3g} ({quantity.peer})"
        verdict = {None: "", True: "kept", False: "[red]not kept[/red]"}[quantity.holds]
        cells = f"{quantity.value:.4g}", quantity.unit, peer, "" if ratio is None else f"{ratio:.2f}"
        table.add_row(quantity.name, *cells, quantity.limit, verdict)
    return table
