"""Physical lower bounds: the least time in which anything could be done over a scenario's path.

From the notation of the project's transport notes: R is the path's round-trip time with empty queues, C the
link's rate at IP level, S the payload, p the loss. A warm tunnel pays no handshake:

    LB_warm(S) = R + S * 8 * h / (C * (1 - p)),    h = 1500 / 1437

where h is what 1500-byte packets carry of a stream through QUIC: IPv4 20, UDP 8, short header 11, AEAD tag
16 and stream frame header 8 bytes are 63 of 1500. A page pays R once per dependent round trip. The same
bound holds for every system, so that ratios can be compared.
"""

from bentpipe_lab import content
from bentpipe_lab.link import Direction, Link

WIRE_PER_PAYLOAD = 1500 / 1437
PAGE_HTTP1_ROUND_TRIPS = 2
"""The HTML, then the objects."""
PAGE_HTTP2_ROUND_TRIPS = 3
"""TLS 1.3 end to end, the HTML, then the objects; TCP is answered locally."""


def transfer_s(size: int, direction: Direction) -> float:
    """The time on the wire of a payload."""
    return size * 8 * WIRE_PER_PAYLOAD / (direction.rate_bit_s * (1 - direction.loss))


def first_byte_s(link: Link) -> float:
    """First byte of a new flow through split connections: the gateway connects before it can ask."""
    return link.satellite_rtt_s + 2 * link.ground_rtt_s


def bound_s(workload: str, link: Link) -> float:
    """The bound of a workload, warm."""
    match workload:
        case "first byte":
            return first_byte_s(link)
        case "download 2 MB":
            return link.path_rtt_s + transfer_s(content.FILES["2MB"], link.forward)
        case "download 10 MiB":
            return link.path_rtt_s + transfer_s(content.FILES["10MiB"], link.forward)
        case "upload 10 MiB":
            return link.path_rtt_s + transfer_s(content.FILES["10MiB"], link.back)
        case "page HTTP/1.1":
            return PAGE_HTTP1_ROUND_TRIPS * link.path_rtt_s + transfer_s(content.page_bytes(), link.forward)
        case "page HTTP/2":
            return PAGE_HTTP2_ROUND_TRIPS * link.path_rtt_s + transfer_s(content.page_bytes(), link.forward)
        case _:
            raise ValueError(f"no bound is known for the workload {workload!r}")
