"""Sizes of packets: what 1500 bytes at the IP level carry."""

PACKET = 1500
"""Bytes of a full packet at the IP level."""
IPV4_HEADER, UDP_HEADER = 20, 8
QUIC_OVERHEAD = 11 + 16 + 8
"""Short header, AEAD tag and stream frame header, bytes."""
UDP_PAYLOAD = PACKET - IPV4_HEADER - UDP_HEADER
STREAM_PAYLOAD = UDP_PAYLOAD - QUIC_OVERHEAD
"""What a full packet carries of a QUIC stream."""
WIRE_PER_PAYLOAD = PACKET / STREAM_PAYLOAD
"""Bytes on the wire for each byte of a stream carried through QUIC in full packets."""
