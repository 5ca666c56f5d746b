"""Everything that is needed to repeat a campaign, and to judge the machine that it ran on."""

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from bentpipe_lab.campaign.preemption import preemption
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host

PACKAGES = ("distributed", "numpy", "polars", "pycurl", "scipy")
PROGRAMS = {"nginx": ["nginx", "-v"], "curl": ["curl", "--version"], "ip": ["ip", "-V"]}
SYSCTLS = (
    "net.core.default_qdisc", "net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_ecn", "net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_wmem",
)  # fmt: skip


def of_campaign(plan_text: str) -> dict[str, Any]:
    """What a campaign is begun with: versions, hashes, kernel, settings and command line."""
    return {
        "begun": now(),
        "command": sys.argv,
        "plan_sha256": hashlib.sha256(plan_text.encode()).hexdigest(),
        "revision": revision(),
        "binary_sha256": binary_sha256(),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in PACKAGES},
            **{name: _version(command) for name, command in PROGRAMS.items()},
        },
        "sysctls": {name: value for name in SYSCTLS if (value := sysctl(name)) is not None},
    }


def processor_waits_s(told: Path = Path("/proc/pressure/cpu")) -> float | None:
    """Seconds since the machine started in which some program waited for a processor; None where it is not told."""
    try:
        match = re.search(r"^some .*\btotal=(\d+)", told.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if match is None else int(match[1]) / 1e6


@dataclass(frozen=True)
class Watch:
    """The moment at which something was begun; how long it took does not depend on the machine's clock being set."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    monotonic_s: float = field(default_factory=time.monotonic)
    waited_before_s: float | None = field(default_factory=processor_waits_s)

    def took_s(self) -> float:
        """Seconds since then."""
        return round(time.monotonic() - self.monotonic_s, 3)

    def processor_wait(self) -> float | None:
        """Share of the time since then in which some program waited for a processor; None where it is not told."""
        after = processor_waits_s()
        if after is None or self.waited_before_s is None:
            return None
        return round((after - self.waited_before_s) / max(time.monotonic() - self.monotonic_s, 1e-3), 3)


def of_run(watch: Watch, command: list[str], **further: Any) -> dict[str, Any]:
    """What a run was done with: when, where, by which command and binary, at what load."""
    return {
        "began": watch.began.isoformat(),
        "took_s": watch.took_s(),
        "host": platform.node(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "processor_wait": watch.processor_wait(),
        "command": command,
        "binary_sha256": binary_sha256(),
        **further,
    }


def now() -> str:
    """The time, as it is kept."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> dict[str, Any]:
    """Processors, memory and kernel."""
    return {
        "host": platform.node(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": f"{platform.system()} {platform.release()} {platform.version()}",
        "preemption": preemption(),
    }


def processor() -> str:
    """The processor's name, as the kernel has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def revision() -> str:
    """The checkout's."""
    done = subprocess.run(
        ["git", "-C", str(host.REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def build() -> str:
    """Of the lab and of the binary that it drives, for whoever compares."""
    return f"revision {revision()}, binary SHA-256 {binary_sha256()}"


def binary_sha256() -> str | None:
    """The binary's; None when it is not built."""
    try:
        path = host.binary()
    except LabError:
        return None
    return _sha256(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _sha256(path: Path, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sysctl(name: str) -> str | None:
    """A kernel parameter; None where the kernel has none of that name."""
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def _version(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0]
