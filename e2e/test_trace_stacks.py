"""`bentpipe trace` beside tshark: the same fields in captures of other people's QUIC implementations."""

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from emulated import bentpipe

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.pcapng"))
FIELDS = ("frame.number", "frame.time_epoch", "quic.packet_number", "quic.stream.stream_id", "quic.stream.offset",
          "quic.stream.length", "quic.ack.largest_acknowledged")  # fmt: skip


@dataclass
class Datagram:
    """What one datagram has. Offsets of zero and lengths to the end of a packet are not on the wire."""

    time_ns: int = 0
    numbers: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    largest: list[int] = field(default_factory=list)


def by_tshark(capture: Path) -> dict[int, Datagram]:
    argv: list[str | Path] = [
        "tshark",
        "-r",
        capture,
        "-d",
        "udp.port==443,quic",
        "-Y",
        "quic and not icmp",
        "-T",
        "fields",
    ]
    argv += [word for name in FIELDS for word in ("-e", name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        number, at, *lists = line.split("\t")
        numbers, streams, offsets, lengths, largest = (
            [int(each, 0) for each in part.split(",") if each] for part in lists
        )
        seconds, nanos = at.split(".")
        found[int(number)] = Datagram(
            int(seconds) * 10**9 + int(nanos), numbers, sorted(streams), sorted(filter(None, offsets)), lengths, largest
        )
    return found


def by_us(tables: Path) -> dict[int, Datagram]:
    found: dict[int, Datagram] = defaultdict(Datagram)
    packets = pl.read_parquet(tables / "packets.parquet").filter(pl.col("number").is_not_null())
    for row in packets.sort("frame", "place").iter_rows(named=True):
        datagram = found[row["frame"]]
        datagram.time_ns = row["time_ns"]
        datagram.numbers.append(row["number"])
        if row["ack"] is not None:
            datagram.largest.append(row["ack"])
    for row in pl.read_parquet(tables / "streams.parquet").iter_rows(named=True):
        datagram = found[row["frame"]]
        datagram.streams.append(row["stream"])
        datagram.lengths.append(row["length"])
        if row["offset"]:
            datagram.offsets.append(row["offset"])
    for datagram in found.values():
        datagram.streams.sort()
        datagram.offsets.sort()
    return dict(found)


@pytest.mark.parametrize("capture", CAPTURES, ids=[capture.stem for capture in CAPTURES])
def test_what_tshark_reads_is_read(capture: Path, tmp_path: Path) -> None:
    done = bentpipe("trace", capture, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    [connection] = json.loads(done.stdout)["connections"]
    assert connection["undecrypted"] == {}
    assert connection["unknown_frames"] == 0
    assert connection["server_sent"]["stream_bytes"] >= 20_000
    ours, theirs = by_us(tmp_path / capture.name), by_tshark(capture)
    assert len(theirs) > 20
    for number, their in theirs.items():
        mine = ours.pop(number)
        lengths = mine.lengths.copy()
        for length in their.lengths:
            lengths.remove(length)
        mine.lengths, their.lengths = [], []
        assert mine == their, number
    assert ours == {}


def test_the_captures_are_of_many_stacks_and_small() -> None:
    assert len(CAPTURES) >= 12
    assert sum(capture.stat().st_size for capture in CAPTURES) < 1 << 20
