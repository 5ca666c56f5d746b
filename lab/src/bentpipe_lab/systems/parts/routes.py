"""How a client's packets come into a system: through its tunnel device, or by TPROXY; and out of it at the gateway."""

import subprocess
import time
from pathlib import Path

from bentpipe_lab.errors import LabError, ProgramError
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import PATIENCE_S, Process
from bentpipe_lab.net.topology import LAN, Topology

CLIENTS = LAN.far4.rpartition(".")[0] + ".0/24"
BEYOND = "10.77.2.0/23"
"""The networks beyond the gateway: servers, and what is behind them."""
_TABLE, _MARK = "77", "0x77"


def through_device(path: Topology, terminal_device: str, gateway_device: str, terminal_end: str) -> None:
    """Route the client's packets into a tunnel's device, and answers back.

    The gateway puts its own address on what leaves it, as a gateway with one public address does; the terminal limits
    the size of TCP segments to what fits into the tunnel, as a home router does.
    """
    path.terminal.ip("route", "replace", BEYOND, "dev", terminal_device)
    path.gateway.ip("route", "replace", CLIENTS, "via", terminal_end, "dev", gateway_device)
    load(path.gateway, "lab_nat", "type nat hook postrouting priority srcnat", 'oifname "gnd0" masquerade')
    fit = "tcp flags syn tcp option maxseg size set rt mtu"
    load(
        path.terminal, "lab_mss", "type filter hook forward priority mangle",
        f'oifname "{terminal_device}" {fit}', f'iifname "{terminal_device}" {fit}',
    )  # fmt: skip


def into_port(path: Topology, port: int) -> None:
    """Give what the client sends beyond the gateway, TCP and UDP, to a program at a port of the terminal (TPROXY)."""
    load(
        path.terminal, "lab_tproxy", "type filter hook prerouting priority mangle",
        f'iifname "lan0" ip daddr {BEYOND} meta l4proto {{ tcp, udp }} tproxy to :{port} meta mark set {_MARK} accept',
    )  # fmt: skip
    path.terminal.ip("rule", "add", "fwmark", _MARK, "lookup", _TABLE)
    path.terminal.ip("route", "add", "local", "default", "dev", "lo", "table", _TABLE)


def load(namespace: Namespace, table: str, hook: str, *rules: str) -> None:
    """Load a table of nftables with one chain inside a namespace."""
    text = "\n".join([f"table ip {table} {{", "chain only {", f"{hook};", *rules, "}", "}", ""])
    done = subprocess.run(
        namespace.command(["nft", "-f", "-"]), input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LabError(f"nft in {namespace.name}: {done.stderr.strip()}")


def wait_for_device(namespace: Namespace, device: str, process: Process) -> None:
    """Wait until a program has made its device."""
    deadline = time.monotonic() + PATIENCE_S
    while f" {device}: " not in namespace.ip("-o", "link", "show"):
        _still(process, deadline, f"made no device {device}")


def wait_for_file(file: Path, process: Process) -> None:
    """Wait until a program has made a file, its control socket for example."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        _still(process, deadline, f"made no {file}")


def wait_for_log(process: Process, words: str) -> None:
    """Wait until a program has said something, on standard output or on standard error."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(words in file.read_text(errors="replace") for file in (process.out, process.log)):
        _still(process, deadline, f"did not say `{words}`")


def _still(process: Process, deadline: float, trouble: str) -> None:
    if process.exit_code is not None or time.monotonic() > deadline:
        raise ProgramError(f"{process.name} {trouble}{process.tail()}")
    time.sleep(0.02)
