"""Physical lower bounds of workloads: the least time in which they could be done over a scenario's path.

Round trips, time on the wire and the first byte are those of the link model (`bentpipe link explain`), for a warm
tunnel, which pays no handshake. A page pays the path's round trip once per dependent step. The same bound holds for
every system, so that ratios can be compared.
"""

from bentpipe_lab.net.link import Link


def first_byte_s(link: Link) -> float:
    """First byte of a new flow through split connections: the gateway connects before it can ask."""
    return link.first_byte_s


def download_s(link: Link, size: int, round_trips: int = 1) -> float:
    """`size` bytes from the server to the client after so many dependent round trips."""
    return round_trips * link.path_rtt_s + size * link.forward.payload_s


def upload_s(link: Link, size: int) -> float:
    """`size` bytes from the client to the server, and its answer."""
    return link.path_rtt_s + size * link.back.payload_s
