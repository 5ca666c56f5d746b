"""A source of UDP packets at a constant rate: `python -m bentpipe_lab.bench.load MBIT_S SECONDS BATCH ADDRESS...`.

Every packet is an IPv4 packet of 1500 bytes and carries its number. A batch of more than one is handed to the
kernel at once and cut there (UDP_SEGMENT), so that one processor can send far more than a gigabit per second.
With several addresses each gets its turn; the rate is that of all together.
"""

import socket
import struct
import sys
import time

from bentpipe_lab.net.packet import PACKET
from bentpipe_lab.net.packet import UDP_PAYLOAD as PAYLOAD

PORT = 9
"""Discard (RFC 863)."""
UDP_SEGMENT = 103
"""linux/udp.h; Python has no name for it."""
MOST_IN_A_BATCH = 40
"""Forty payloads stay below the 64 KiB of one UDP send."""


def send(bit_s: float, seconds: float, batch: int, addresses: list[str]) -> int:
    """Send as fast as asked for or as it goes, and return how many packets the kernel took."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        if batch > 1:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD)
        data = bytearray(PAYLOAD * batch)
        gap = batch * PACKET * 8 / bit_s
        sent = turn = 0
        begin = now = time.monotonic()
        while max(due := begin + turn * gap, now) < begin + seconds:
            if due > now:
                time.sleep(due - now)
            for place in range(batch):
                struct.pack_into("!Q", data, place * PAYLOAD, sent + place)
            try:
                sock.sendto(data, (addresses[turn % len(addresses)], PORT))
                sent += batch
            except (BlockingIOError, ConnectionRefusedError):
                pass  # no room, or nobody reads: the devices' counters tell
            turn += 1
            now = time.monotonic()
        return sent


if __name__ == "__main__":
    _, rate, length, packets, *targets = sys.argv
    print(f"sent {send(float(rate) * 1e6, float(length), int(packets), targets)}", flush=True)
