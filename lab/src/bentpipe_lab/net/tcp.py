"""The kernel's TCP at the nodes of a path: congestion controllers and initial windows."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from bentpipe_lab.errors import LabError, MissingCapabilityError
from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import NODES, SMALLEST_BUFFER, Topology
from bentpipe_lab.size import size

CONTROLLER = "cubic"
"""At every node for which nothing else is said."""


@dataclass(frozen=True)
class KernelTcp:
    """What was chosen, for all nodes or for some."""

    controllers: Mapping[str, str] = field(default_factory=dict)
    """By node; "" is all that have none of their own."""
    initial_windows: Mapping[str, int] = field(default_factory=dict)
    """Segments, by node in the same way; without one it is Linux's, which is 10."""
    buffers: Mapping[str, int] = field(default_factory=dict)
    """The largest socket buffer, bytes, by node in the same way; without one it is the lab's."""

    @classmethod
    def of(cls, axes: Mapping[str, Any]) -> Self:
        """From a plan's axes, `tcp_controller` and `NODE.tcp_controller` for example."""
        split = {axis: _split(axis) for axis in axes}
        return cls(
            {node: str(axes[axis]) for axis, (node, name) in split.items() if name == "tcp_controller"},
            {node: int(axes[axis]) for axis, (node, name) in split.items() if name == "tcp_initial_window"},
            {node: size(str(axes[axis])) for axis, (node, name) in split.items() if name == "tcp_buffer"},
        )

    def controller(self, node: str = "") -> str:
        """The controller at a node, or at all that have none of their own."""
        return self.controllers.get(node) or self.controllers.get("") or CONTROLLER

    def lacking(self) -> list[str]:
        """What this kernel lacks of it, and what to do."""
        known = host.AVAILABLE_CONTROL.read_text().split()
        return [
            f"this kernel has no TCP {name}, only {', '.join(known)}: `modprobe tcp_{name}`, as root, where it is built"
            for name in self._names()
            if name not in known
        ]

    def _names(self) -> list[str]:
        return sorted({self.controller(), *self.controllers.values()})

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Have the host allow the controllers inside namespaces, for as long as this lasts."""
        with ExitStack() as stack:
            for problem in self.lacking():
                raise MissingCapabilityError(problem)
            for name in self._names():
                stack.enter_context(host.allowed_congestion_control(name))
            yield

    def apply(self, path: Topology) -> None:
        """Set what is chosen for single nodes, socket buffers, and the initial windows of all routes."""
        for node in NODES:
            namespace: Namespace = getattr(path, node)
            if node in self.controllers:
                namespace.sysctl(net__ipv4__tcp_congestion_control=self.controllers[node])
            largest = self.buffers.get(node, self.buffers.get(""))
            if largest is not None:
                buffers = f"{SMALLEST_BUFFER} {largest}"
                namespace.sysctl(net__ipv4__tcp_rmem=buffers, net__ipv4__tcp_wmem=buffers)
            window = self.initial_windows.get(node, self.initial_windows.get(""))
            if window is not None:
                _set_initial_window(namespace, window)


def _split(axis: str) -> tuple[str, str]:
    node, _, name = axis.rpartition(".")
    return node, name


def _set_initial_window(namespace: Namespace, segments: int) -> None:
    """The kernel takes a connection's initial window from its route."""
    for family in ("-4", "-6"):
        for route in namespace.ip(family, "route", "show").splitlines():
            words = route.split()
            if not words or words[0] in ("blackhole", "unreachable", "multicast") or words[0].startswith("fe80"):
                continue
            while "initcwnd" in words:
                at = words.index("initcwnd")
                del words[at : at + 2]
            words = [word for word in words if word not in ("linkdown", "onlink")]
            try:
                namespace.ip(family, "route", "replace", *words, "initcwnd", str(segments))
            except LabError as error:
                raise LabError(f"the initial window of {namespace.name} cannot be set: {error}") from error
