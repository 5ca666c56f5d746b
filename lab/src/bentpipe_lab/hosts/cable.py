"""A virtual Ethernet cable to another machine: VXLAN (RFC 7348), whose device is moved into a namespace."""

from bentpipe_lab.net import netns
from bentpipe_lab.net.netns import Namespace

PORT = 4789
MTU = 1450
"""Of the cable: VXLAN adds 50 bytes, and the kernel does not fragment what came with Don't Fragment."""


def lay(where: Namespace, device: str, far: str, identifier: int, *addresses: str) -> None:
    """Lay the near end to the machine with the address `far`; both ends have the same identifier, 24 bits."""
    made = f"bpx{identifier:x}"
    netns.ip("link", "add", made, "type", "vxlan", "id", str(identifier), "remote", far, "dstport", str(PORT))
    try:
        netns.ip("link", "set", made, "netns", where.name)
    except BaseException:
        netns.ip("link", "delete", made)
        raise
    where.ip("link", "set", made, "name", device, "mtu", str(MTU))
    for address in addresses:
        where.ip("address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))
    where.ip("link", "set", device, "up")
