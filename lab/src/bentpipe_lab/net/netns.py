"""Network namespaces: made, entered, wired together and removed, by name."""

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import interrupt

RUN_NETNS = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def ip(*arguments: str) -> str:
    """Run `ip` in this process's namespace and return what it printed."""
    return checked(["ip", *arguments])


def checked(argv: Sequence[str], given: str = "") -> str:
    """Run a program to its end, with a text as its input, and return its output; what fails is told whole."""
    done = subprocess.run(argv, capture_output=True, text=True, input=given, check=False)
    if done.returncode != 0:
        command = " ".join(argv) + (f" <<< '{given}'" if given else "")
        raise LabError(f"`{command}` failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")
    return done.stdout


def existing() -> set[str]:
    """The names of the network namespaces that exist now."""
    return {path.name for path in RUN_NETNS.iterdir()} if RUN_NETNS.is_dir() else set()


@dataclass(frozen=True)
class Namespace:
    """One named network namespace."""

    name: str

    @property
    def path(self) -> Path:
        """Where the namespace is mounted."""
        return RUN_NETNS / self.name

    def create(self) -> None:
        """Make it, with its loopback interface up."""
        ip("netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    def delete(self) -> None:
        """Kill what still runs in it, then remove it; it is no error when it is already gone."""
        if self.name not in existing():
            return
        for pid in self.pids():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        ip("netns", "delete", self.name)

    def pids(self) -> list[int]:
        """The processes that live in it."""
        return [int(pid) for pid in ip("netns", "pids", self.name).split()]

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """The command line which runs `argv` inside; the process that is started becomes the program."""
        return ["nsenter", f"--net={self.path}", "--", *map(str, argv)]

    def run(self, *argv: str | Path) -> str:
        """Run a program inside, to its end; return what it printed."""
        return checked(self.command(argv))

    def ip(self, *arguments: str) -> str:
        """Run `ip` inside."""
        return ip(*self._ip_options(), *arguments)

    def ip_all(self, *commands: str) -> None:
        """Run `ip` once inside for several of its commands, in order; one that fails is the last."""
        checked(["ip", *self._ip_options(), "-batch", "-"], "".join(f"{command}\n" for command in commands))

    def _ip_options(self) -> list[str]:
        return ["-n", self.name]

    def sysctl(self, **settings: str | int) -> None:
        """Set kernel parameters inside; `net__ipv4__ip_forward=1` is net.ipv4.ip_forward."""
        with self.entered():
            for key, value in settings.items():
                path = Path("/proc/sys", *key.split("__"))
                try:
                    path.write_text(f"{value}\n")
                except OSError as error:
                    raise LabError(f"cannot set {key.replace('__', '.')} = {value} in {self.name}: {error}") from error

    def read_sysctl(self, key: str) -> str:
        """Read a kernel parameter inside, by its dotted name."""
        with self.entered():
            return Path("/proc/sys", *key.split(".")).read_text().strip()

    def socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
        """Open a socket that lives inside, for a caller that lives outside."""
        with self.entered():
            return socket.socket(family, kind, protocol)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the calling thread inside, and back where the lab was started afterwards; for a moment only.

        Who asks the run to end is heard outside: whoever stays inside is killed with what else runs there (`delete`).
        """
        if threading.current_thread().daemon:
            raise LabError("a daemon thread must not enter a namespace: it may end while it is inside")
        with interrupt.shielded():
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(descriptor)
                try:
                    yield
                finally:
                    _setns(_home)
            finally:
                os.close(descriptor)


class OwnNetwork(Namespace):
    """The network that this process is in, used as it is: nothing is made or removed."""

    @property
    def path(self) -> Path:
        """The kernel's link to it."""
        return Path("/proc/self/ns/net")

    def _ip_options(self) -> list[str]:
        return []

    def create(self) -> None:
        """It is there."""

    def delete(self) -> None:
        """It stays."""


def veth(near: Namespace, near_name: str, far: Namespace, far_name: str) -> None:
    """Connect two namespaces by a virtual Ethernet cable and set both ends up."""
    near.ip("link", "add", near_name, "type", "veth", "peer", "name", far_name, "netns", far.name)
    near.ip("link", "set", near_name, "up")
    far.ip("link", "set", far_name, "up")


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
