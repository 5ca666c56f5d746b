import math
import struct
from pathlib import Path

import pytest

from bentpipe_lab.bench.link import delay_errors
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.errors import LabError
from bentpipe_lab.net.capture import Seen, read


def test_a_quantity_keeps_its_limits_or_does_not_or_has_none() -> None:
    assert Quantity("rate", 1.0, "Mbit/s").holds is None
    assert Quantity("rate", 1.0, "Mbit/s", least=1.0, most=2.0).holds is True
    assert Quantity("rate", 0.99, "Mbit/s", least=1.0, most=2.0).holds is False
    assert Quantity("rate", 2.01, "Mbit/s", least=1.0, most=2.0).holds is False
    assert Quantity("rate", math.nan, "Mbit/s", least=1.0).holds is False
    assert Quantity("rate", math.nan, "Mbit/s", most=1.0).holds is False
    assert Quantity("rate", 1.0, "Mbit/s", least=0.5, most=2.0).limit == ">= 0.5 and <= 2"


def test_the_expected_arrival_counts_the_queue_and_nothing_else() -> None:
    # 1500 bytes take 1 ms at 12 Mbit/s. The second comes while the first is sent, the fourth is lost.
    departures = [Seen(at, number, 1500) for number, at in enumerate((0, 200_000, 5_000_000, 6_000_000))]
    arrivals = [Seen(21_000_000, 0, 1500), Seen(22_040_000, 1, 1500), Seen(25_990_000, 2, 1500)]
    assert delay_errors(departures, arrivals, 12e6, 20) == pytest.approx([0, 40, -10])


def test_captures_are_read_packet_by_packet(tmp_path: Path) -> None:
    header = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 64, 101)
    ip = bytes([0x45, 0]) + struct.pack("!H", 1500) + bytes(16)
    packet = ip + bytes(8) + struct.pack("!Q", 77) + bytes(28)
    other = bytes([0x60]) + bytes(63)
    records = [
        struct.pack("=IIII", 3, 5, 64, 1500) + packet,
        struct.pack("=IIII", 3, 9, 64, 80) + other,
        struct.pack("=IIII", 4, 0, 64, 1500) + packet,
    ]
    file = tmp_path / "a.pcap"
    file.write_bytes(header + b"".join(records))
    assert read(file) == [Seen(3_000_000_005, 77, 1500), Seen(4_000_000_000, 77, 1500)]
    file.write_bytes(b"not a capture at all, not even nearly")
    with pytest.raises(LabError, match="nanoseconds"):
        read(file)
