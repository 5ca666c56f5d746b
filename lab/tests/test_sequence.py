"""Sequence numbers of page loads over time: what a capture says of them, and what the figure shows."""

import csv
import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.records.tables import METRICS_SCHEMA, SAMPLES_SCHEMA
from bentpipe_lab.report.charts import Chart, Looks, over_time
from bentpipe_lab.report.sequence import STEPS, sequence_numbers
from bentpipe_lab.workloads.programs import arrived

CAPTURES = host.REPOSITORY / "e2e/captures"
PORT = 4443
SECOND = 1_000_000_000
PICTURE = 5_300_000


def packets(*sent: tuple[float, bool]) -> pl.DataFrame:
    """Moments in seconds, and whether the client sent it."""
    return pl.DataFrame({"time_ns": [round(at * SECOND) for at, _ in sent], "from_client": [who for _, who in sent]})


def streams(*came: tuple[float, bool, int, int]) -> pl.DataFrame:
    """Moments in seconds, whether from the client, length, and how much of it had come before."""
    columns = zip(*[(round(at * SECOND), *rest) for at, *rest in came], strict=True)
    return pl.DataFrame(dict(zip(("time_ns", "from_client", "length", "repeated"), columns, strict=True)))


def test_what_is_sent_again_counts_once_and_pauses_stay_pauses() -> None:
    rounds = [(1000 + begin + place / 1000, False, 1000, 0) for begin in (1.5, 2.25) for place in range(10)]
    again = [(1003.0, False, 1000, 1000), (1003.1, False, 1000, 400), (1000.0, True, 500, 0)]
    found = arrived.arrivals(packets((999.9, False), (1000, True), (1001, True)), streams(*rounds, *again))
    assert [(each["at_s"], each["received_bytes"]) for each in found] == [
        (0.0, 0), (1.5, 1000), (1.509, 10_000), (2.25, 11_000), (2.259, 20_000), (3.1, 20_600),
    ]  # fmt: skip


def test_where_nothing_came_there_are_no_samples() -> None:
    assert arrived.arrivals(packets((1, True)), streams((1, True, 500, 0))) == []


def pcap(*segments: tuple[float, bool, int, bytes, int]) -> bytes:
    """A capture of one TCP connection: moment, from the client, sequence number, payload, flags."""
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 101)
    for at, from_client, number, payload, flags in segments:
        ends, ports = ((b"\x0a\x4d\x00\x02", b"\x0a\x4d\x02\x02"), (40000, PORT))
        if not from_client:
            ends, ports = (ends[1], ends[0]), (ports[1], ports[0])
        tcp = struct.pack("!HHIIBBHHH", *ports, number, 1, 5 << 4, flags, 65535, 0, 0) + payload
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + b"".join(ends) + tcp
        out += struct.pack("<IIII", int(at), round(at % 1 * SECOND), len(ip), len(ip)) + ip
    return out


def kept(directory: Path, capture: bytes, dropped: int = 0) -> Path:
    file = directory / "load.pcap"
    file.write_bytes(capture)
    file.with_suffix(".log").write_text(f"9 packets captured\n{dropped} packets dropped by kernel\n")
    return file


SYN, ACK = 2, 16
CONNECTION = (
    (10.0, True, 100, b"", SYN), (10.75, False, 500, b"", SYN | ACK), (10.8, True, 101, b"", ACK),
    (11.5, False, 501, b"a" * 1000, ACK), (11.6, False, 2501, b"c" * 1000, ACK),
    (12.0, False, 1501, b"b" * 1000, ACK), (12.1, False, 1501, b"b" * 1000, ACK),
)  # fmt: skip


def test_a_capture_of_tcp_tells_when_its_bytes_came(tmp_path: Path) -> None:
    """The second segment comes last, then once more."""
    found = arrived.samples(kept(tmp_path, pcap(*CONNECTION)), tmp_path / "no keys", 3000)
    times, counts = ([each[name] for each in found] for name in ("at_s", "received_bytes"))
    assert times == pytest.approx([0.0, 1.5, 1.6, 2.0])
    assert counts == [0, 1000, 2000, 3000]


def test_what_the_capture_does_not_tell_whole_is_refused(tmp_path: Path) -> None:
    capture = pcap(*CONNECTION)
    with pytest.raises(ProgramError, match="3000 bytes of at least 3001"):
        arrived.samples(kept(tmp_path, capture), tmp_path / "no keys", 3001)
    with pytest.raises(ProgramError, match="missed 7 packets"):
        arrived.samples(kept(tmp_path, capture, dropped=7), tmp_path / "no keys", 1)
    with pytest.raises(ProgramError, match="was not read"):
        arrived.samples(kept(tmp_path, capture[:-10]), tmp_path / "no keys", 1)


def test_of_quic_bytes_of_streams_count(tmp_path: Path) -> None:
    """Chromium's page from Envoy: a response of 20,016 bytes, and what the server's control stream has."""
    capture = kept(tmp_path, (CAPTURES / "chromium-envoy.pcapng").read_bytes())
    found = arrived.samples(capture, tmp_path / "no keys", 20_016)
    assert 20_016 < found[-1]["received_bytes"] < 20_300
    assert found[1]["at_s"] == pytest.approx(0.0443, abs=1e-3)


def row(point: str, system: str, protocol: str, times: Mapping[int, float], page: str = "picture") -> PointRow:
    """A point of a page; of each repetition that ended well its page load time."""
    setting = {"workload.protocol": protocol, "workload.page": page, "case": "SATCOM"}
    return PointRow(
        point, "real", {"system": system, "workload": "web page", **setting}, system, setting, "web page",
        list(times.values()), [30.0], 3.0, PICTURE, median_interval(list(times.values())),
        {"ok": len(times), "stalled": 1}, 0, [(repetition, 1) for repetition in times],
    )  # fmt: skip


def steady(point: str, repetition: int, from_s: float, to_s: float, attempt: int = 1) -> pl.DataFrame:
    """Bytes that come at one rate from a moment to another."""
    at = [0.0, *(from_s + (to_s - from_s) * step / 200 for step in range(201))]
    columns: dict[str, Sequence[Any]] = {
        "point": [point] * 202, "repetition": [repetition] * 202, "attempt": [attempt] * 202, "at_s": at,
        "received_bytes": [0, *(PICTURE * step // 200 for step in range(201))],
    }  # fmt: skip
    return pl.DataFrame({name: columns.get(name, [None] * 202) for name in SAMPLES_SCHEMA}, schema=SAMPLES_SCHEMA)


def drawn(tmp_path: Path, rows: Sequence[PointRow], *samples: pl.DataFrame) -> list[Chart]:
    file = tmp_path / "samples.parquet"
    pl.concat(samples).write_parquet(file)
    metrics = [
        (each.point, *run, "response_start_s", 2.0 + run[0] / 10)
        for each in rows
        for run in each.good
        if each.point != "without"
    ]
    return sequence_numbers(rows, file, pl.DataFrame(metrics, schema=METRICS_SCHEMA, orient="row"))


def table(chart: Chart) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(chart.csv()), schema_overrides={"median_run": pl.String})


def test_tcp_and_quic_are_in_one_panel_with_every_run_and_the_median_one(tmp_path: Path) -> None:
    """The third repetition of TCP is the median by its time; the fourth did not end well, and is not there."""
    tcp, quic = {1: 9.0, 2: 4.0, 3: 5.0}, {1: 8.0, 2: 10.0}
    rows = [row("tcp", "tcp-pep", "HTTP/2", tcp), row("quic", "direct", "HTTP/3", quic)]
    runs = [steady(point, number, 2.0, end) for point, some in (("tcp", tcp), ("quic", quic))
            for number, end in some.items()]  # fmt: skip
    (chart,) = drawn(tmp_path, rows, *runs, steady("tcp", 4, 2.0, 30.0), steady("tcp", 1, 2.0, 99.0, attempt=2))
    assert chart.name == "sequence-numbers-1"
    said = chart.svg
    assert said.count("<!-- real, picture, SATCOM") == 1
    assert "<!-- tcp-pep, HTTP/2 -->" in said
    assert "<!-- direct, HTTP/3 -->" in said
    assert "3 to 4 runs each, up to 1 left out" in said
    found = table(chart)
    lines = found.filter(pl.col("event") == "sample").group_by("point", "repetition", "median_run").len()
    assert sorted(lines.rows()) == [
        ("quic", 1, "True", 203), ("quic", 2, "False", STEPS + 1),
        ("tcp", 1, "False", STEPS + 1), ("tcp", 2, "False", STEPS + 1), ("tcp", 3, "True", 203),
    ]  # fmt: skip
    last = (
        found.filter(pl.col("event") == "sample")
        .group_by("point", "repetition")
        .agg(pl.col("at_s", "received_mb").max())
    )
    assert {(point, number): at for point, number, at, _ in last.rows()} == {
        **{("tcp", number): end for number, end in tcp.items()},
        **{("quic", number): end for number, end in quic.items()},
    }
    assert set(last["received_mb"]) == {5.3}
    assert "tcp-pep, HTTP/2 5 s" in chart.alternative
    assert "direct, HTTP/3 8 s" in chart.alternative


def test_triangles_stand_on_the_line_at_what_the_browser_told(tmp_path: Path) -> None:
    rows = [row("with", "direct", "HTTP/3", {5: 6.5}), row("without", "tcp-pep", "HTTP/2", {5: 6.5})]
    (chart,) = drawn(tmp_path, rows, steady("with", 5, 2.0, 6.0), steady("without", 5, 2.0, 6.0))
    events = table(chart).filter(pl.col("event") != "sample").select("point", "event", "at_s", "received_mb").rows()
    assert events == [
        ("with", "response start", 2.5, pytest.approx(5.3 / 8)), ("with", "page load", 6.5, 5.3),
        ("without", "page load", 6.5, 5.3),
    ]  # fmt: skip


def test_where_only_a_run_that_does_not_count_was_captured_there_is_no_line(tmp_path: Path) -> None:
    rows = [row("late", "direct", "HTTP/3", {1: 6.0}), row("good", "direct", "HTTP/2", {1: 6.0})]
    late = steady("late", 1, 2.0, 9.0, attempt=2)
    assert drawn(tmp_path, rows[:1], late) == []
    (chart,) = drawn(tmp_path, rows, late, steady("good", 1, 2.0, 6.0))
    assert set(table(chart)["point"]) == {"good"}


def test_pages_and_links_have_panels_of_their_own_and_what_is_no_page_has_none(tmp_path: Path) -> None:
    rows = [row("a", "direct", "HTTP/2", {1: 5.0}), row("b", "direct", "HTTP/2", {1: 4.0}, page="small")]
    download = PointRow(
        "c", "real", {"system": "direct", "workload": "download"}, "direct", {}, "download", [5.0], [], 3.0, PICTURE,
        median_interval([5.0]), {"ok": 1}, 0, [(1, 1)],
    )  # fmt: skip
    everything = [steady(point, 1, 2.0, 5.0) for point in "abc"]
    (chart,) = drawn(tmp_path, [*rows, download], *everything)
    assert "real, picture, SATCOM" in chart.svg
    assert "real, small, SATCOM" in chart.svg
    assert set(table(chart)["point"]) == {"a", "b"}
    assert drawn(tmp_path, rows, everything[2]) == []
    pl.concat(everything).write_parquet(tmp_path / "all.parquet")
    looks = Looks(["direct"])
    of_runs = over_time([*rows, download], tmp_path / "all.parquet", looks)
    points = {each["point"] for chart in of_runs for each in csv.DictReader(io.StringIO(chart.csv()))}
    assert points == {"c"}, "pages have the figure of sequence numbers instead"
