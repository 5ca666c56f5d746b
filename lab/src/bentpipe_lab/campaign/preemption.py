"""Preemption of the kernel: whether it lets the emulator in while another process is in a system call.

Where it does not, a system call of 10 ms makes the emulator late by as much, whatever its priority.
"""

import gzip
import platform
import re
from pathlib import Path

UNKNOWN = "unknown"
LATE = ("none", "voluntary")
"""Those with which others' system calls make an emulator late."""
REMEDY = "boot with preempt=full, or as root: echo full > /sys/kernel/debug/sched/preempt"
_NOW = Path("/sys/kernel/debug/sched/preempt")
_BOOT = Path("/proc/cmdline")
_BUILT = {"NONE": "none", "VOLUNTARY": "voluntary", "LAZY": "lazy", "": "full", "RT": "full"}


def preemption() -> str:
    """`full`, `lazy`, `voluntary` or `none`; "unknown" where the kernel does not tell."""
    return told(_text(_NOW), _text(_BOOT), platform.version(), _configuration())


def told(now: str, boot: str, version: str, configuration: str) -> str:
    """What four sources say, the best first: debugfs, the command line, the kernel's version and configuration."""
    if chosen := re.search(r"\((\w+)\)", now):
        return chosen[1]
    if chosen := re.search(r"\bpreempt=(\w+)", boot):
        return chosen[1]
    if re.search(r"\bPREEMPT(_RT)?\b(?!_)", version):
        return "full"
    for name, what in _BUILT.items():
        option = f"CONFIG_PREEMPT{'_' if name else ''}{name}=y"
        if option in configuration.splitlines():
            return what
    return UNKNOWN


def advice(mode: str) -> str | None:
    """What would make the emulator more punctual; None where it cannot be told, or nothing is to be done."""
    if mode not in LATE:
        return None
    return f"the kernel's preemption is {mode!r}: others' system calls hold the emulator up; {REMEDY}"


def _configuration() -> str:
    try:
        return gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
    except OSError:
        return _text(Path(f"/boot/config-{platform.release()}"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
