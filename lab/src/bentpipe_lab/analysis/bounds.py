"""Physical lower bounds: the least time in which anything could be done over a scenario's path.

R is the path's round-trip time with empty queues, C the link's rate at IP level, S the payload, p the loss. A
warm tunnel pays no handshake:

    LB_warm(S) = R + S * 8 * h / (C * (1 - p))

where h is what full packets cost of the wire for what they carry of a stream through QUIC (`net.packet`). A page
pays R once per dependent round trip. The same bound holds for every system, so that ratios can be compared.
Rates, delays and losses are those of `bentpipe link explain`.
"""

from bentpipe_lab.net.link import Direction, Link
from bentpipe_lab.net.packet import WIRE_PER_PAYLOAD


def transfer_s(size: int, direction: Direction) -> float:
    """The time on the wire of a payload of `size` bytes."""
    return size * 8 * WIRE_PER_PAYLOAD / (direction.rate_bit_s * (1 - direction.loss))


def first_byte_s(link: Link) -> float:
    """First byte of a new flow through split connections: the gateway connects before it can ask."""
    return link.satellite_rtt_s + 2 * link.ground_rtt_s


def download_s(link: Link, size: int, round_trips: int = 1) -> float:
    """`size` bytes from the server to the client after so many dependent round trips."""
    return round_trips * link.path_rtt_s + transfer_s(size, link.forward)


def upload_s(link: Link, size: int) -> float:
    """`size` bytes from the client to the server, and its answer."""
    return link.path_rtt_s + transfer_s(size, link.back)
