"""What the kernel counts as the memory of an end: its resident pages, and the TCP queues of its namespace."""

import re

from bentpipe_lab.net.process import Process
from bentpipe_lab.systems.tunnel import Bentpipe

SKMEM = re.compile(r"skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f\d+,w(\d+),")


def ends(tunnel: Bentpipe) -> tuple[Process, Process]:
    """Gateway and terminal."""
    return (tunnel.gateway, tunnel.terminal)


def held_mib(tunnel: Bentpipe, end: Process) -> int:
    """What an end holds, and the kernel for it."""
    return (end.resident_bytes() + kernel_bytes(tunnel, end)) >> 20


def kernel_bytes(tunnel: Bentpipe, end: Process) -> int:
    """What the kernel holds in the TCP queues of an end's namespace."""
    where = tunnel.path.gateway if end is tunnel.gateway else tunnel.path.terminal
    queues = SKMEM.findall(where.run("ss", "--tcp", "--numeric", "--memory", "--no-header"))
    return sum(int(received) + int(sent) for received, sent in queues)
