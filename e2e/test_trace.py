"""`bentpipe trace`: what it reads in a capture of somebody else's QUIC, beside what Wireshark's tshark reads."""

import json
import struct
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bentpipe_lab.net.process import Process
from conversation import eventually
from emulated import GATEWAY, bentpipe, emulated

PORT = 4433
SIZE = 2_000_000
SCENARIO = """
name = "lossy"
[forward]
rate = "20 Mbit/s"
delay = "40 ms"
# One of 100, and not one of the handshake's: who loses one of those waits for a second.
loss.periodic = { every = 100, lose = 1, first = 60 }
queue = "100 kB"
[return]
rate = "2 Mbit/s"
delay = "40 ms"
queue = "30 kB"
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of a lossy download by ngtcp2, with its keys in it."""
    where = tmp_path_factory.mktemp("trace")
    keys, capture = where / "keys.log", where / "download.pcapng"
    (where / "files").mkdir()
    (where / "files" / "file").write_bytes(bytes(range(256)) * (SIZE // 256))
    with emulated(where, SCENARIO, ["--capture", capture, "--key-log", keys]) as link:
        key, certificate = where / "key.pem", where / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", key, "-out", certificate, "-subj", "/CN=test"], check=True, capture_output=True,
        )  # fmt: skip
        serve = [
            "/usr/sbin/gtlsserver",
            "-q",
            "-d",
            str(where / "files"),
            GATEWAY,
            str(PORT),
            str(key),
            str(certificate),
        ]
        server = Process("server", link.gateway.command(serve), where)
        fetch = ["env", f"SSLKEYLOGFILE={keys}", "gtlsclient", "-q", "--exit-on-all-streams-close", "--download",
                 str(where), "--qlog-file", str(where / "client.qlog"), GATEWAY, str(PORT),
                 f"https://{GATEWAY}/file"]  # fmt: skip
        # What comes before it listens is repeated a second later, and the handshake would take as long.
        listens = ["ss", "--no-header", "--udp", "--all", "--numeric", f"sport = :{PORT}"]
        eventually(lambda: bool(link.gateway.run(*listens).strip()), "the server listens")
        subprocess.run(link.terminal.command(fetch), check=False, timeout=60, capture_output=True)
        server.stop()
        link.end()
    assert (where / "file").stat().st_size == (where / "files" / "file").stat().st_size
    keys.rename(where / "kept.log")
    return capture


@pytest.fixture(scope="module")
def read(captured: Path) -> dict[str, Any]:
    """The summary, and where the tables are."""
    out = captured.parent / "out"
    done = bentpipe("trace", captured, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return {"tables": out / captured.name, **json.loads(done.stdout)}


def test_the_summary_has_the_whole_download_and_what_was_repeated(read: dict[str, Any]) -> None:
    connection = max(read["connections"], key=lambda each: each["server_sent"]["stream_bytes"])
    sent = connection["server_sent"]
    size = (SIZE // 256) * 256
    assert size <= sent["stream_bytes"] <= size + 10_000
    assert 0 < sent["repeated_bytes"] < size
    assert connection["undecrypted"] == {}
    # 80 ms there and back: the handshake takes one, the first byte of the answer another.
    assert 0.080 <= connection["handshake_s"] < 0.2
    assert connection["handshake_s"] < connection["first_byte_s"] < connection["last_byte_s"]
    # The emulator captures a packet first where it enters: an acknowledgement at the other end.
    assert 40 <= sent["rtt_ms"]["least"] < 60
    assert connection["goodput"]["request_bit_s"] < 20e6


def test_packet_numbers_and_stream_offsets_agree_with_tshark(captured: Path, tmp_path: Path) -> None:
    # tshark takes the packets of all interfaces for one sequence: it is given those where packets enter.
    enter, keys = tmp_path / "enter.pcapng", captured.parent / "kept.log"
    where = 'frame.interface_name == "satellite forward in" or frame.interface_name == "satellite return in"'
    subprocess.run(["tshark", "-r", captured, "-Y", where, "-w", enter], check=True, capture_output=True)
    assert bentpipe("trace", enter, "--keys", keys, "--out", tmp_path / "out").returncode == 0
    tables = tmp_path / "out" / enter.name
    fields = ["frame.number", "quic.packet_number", "quic.stream.offset"]
    done = subprocess.run(
        ["tshark", "-r", enter, "-o", f"tls.keylog_file:{keys}", "-d", f"udp.port=={PORT},quic",
         "-Y", "quic and not icmp", "-T", "fields",
         *(part for field in fields for part in ("-e", field))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = {}
    for line in done.stdout.splitlines():
        number, packets, offsets = line.split("\t")
        split = [int(each) for each in packets.split(",") if each]
        theirs[int(number)] = (split, sorted(int(each) for each in offsets.split(",") if each and int(each)))
    ours: dict[int, list[int]] = defaultdict(list)
    for row in pl.read_parquet(tables / "packets.parquet", columns=["frame", "number"]).iter_rows(named=True):
        ours[row["frame"]].append(row["number"])
    offsets_of: dict[int, list[int]] = defaultdict(list)
    for row in pl.read_parquet(tables / "streams.parquet", columns=["frame", "offset"]).iter_rows(named=True):
        if row["offset"]:
            offsets_of[row["frame"]].append(row["offset"])
    assert len(theirs) > 1000
    assert {frame: (numbers, sorted(offsets_of[frame])) for frame, numbers in ours.items()} == theirs


def test_a_qlog_of_the_client_has_the_packets_that_the_capture_has(captured: Path, tmp_path: Path) -> None:
    for file in (captured, captured.parent / "client.qlog"):
        done = bentpipe("trace", file, "--out", tmp_path)
        assert done.returncode == 0, done.stderr
    seen = _packets(tmp_path / captured.name)
    logged = _packets(tmp_path / "client.qlog")
    for from_client in (True, False):
        side = pl.col("from_client") == from_client
        ours = logged.filter(side).select("kind", "number", "size").unique().sort("kind", "number")
        theirs = seen.filter(side).select("kind", "number", "size").unique()
        assert ours.height > 100
        assert ours.join(theirs, on=["kind", "number", "size"], how="anti").is_empty()
    pieces = [
        pl.read_parquet(tmp_path / name / "streams.parquet").filter(~pl.col("from_client"))
        for name in (captured.name, "client.qlog")
    ]
    key = ["number", "stream", "offset", "length", "fin"]
    assert pieces[1].height > 1000
    assert pieces[1].join(pieces[0], on=key, how="anti").is_empty()


def _packets(tables: Path) -> pl.DataFrame:
    return pl.read_parquet(tables / "packets.parquet").filter(pl.col("number").is_not_null())


def test_http3_frames_are_read_with_their_field_lines(read: dict[str, Any]) -> None:
    frames = pl.read_parquet(read["tables"] / "http3.parquet").unique(["from_client", "stream", "offset"])
    asked = frames.filter(pl.col("from_client") & (pl.col("kind") == "headers"))["fields"][0]
    assert ":method: GET" in asked.splitlines()
    assert ":path: /file" in asked.splitlines()
    answer = frames.filter(~pl.col("from_client") & (pl.col("kind") == "headers"))["fields"][0]
    assert ":status: 200" in answer.splitlines()
    assert f"content-length: {(SIZE // 256) * 256}" in answer.splitlines()
    assert set(frames.filter(pl.col("kind") == "settings")["from_client"]) == {True, False}
    body = frames.filter(~pl.col("from_client") & (pl.col("kind") == "data"))["length"].sum()
    assert body == (SIZE // 256) * 256


def test_another_runs_keys_are_told_and_what_can_be_read_is_read(captured: Path, tmp_path: Path) -> None:
    keys = tmp_path / "other.log"
    keys.write_text(f"CLIENT_TRAFFIC_SECRET_0 {'ab' * 32} {'cd' * 32}\n")
    done = bentpipe("trace", captured, "--keys", keys, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    connection = max(json.loads(done.stdout)["connections"], key=lambda each: each["server_sent"]["bytes"])
    assert "the key log has no secrets of this connection" in connection["undecrypted"]
    keys.write_text("these are no keys\n")
    done = bentpipe("trace", captured, "--keys", keys, "--out", tmp_path)
    assert done.returncode == 2
    assert "no secrets in it" in done.stderr


def test_a_truncated_capture_is_read_up_to_where_it_ends(captured: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(captured.read_bytes()[:500_001])
    done = bentpipe("trace", cut, "--out", tmp_path / "out", "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert "truncated at byte" in summary["damage"]
    assert summary["packets"] > 100
    assert pl.read_parquet(tmp_path / "out" / "cut.pcapng" / "packets.parquet").height > 100


def test_a_damaged_capture_is_read_up_to_the_damage(captured: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pcapng"
    content = bytearray(captured.read_bytes())
    content[600_000:604_000] = b"\xff" * 4000
    damaged.write_bytes(content)
    done = bentpipe("trace", damaged, "--out", tmp_path / "out", "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert summary["damage"]
    before = [each for each in summary["connections"] if each["server_sent"]["stream_bytes"] > 100_000]
    assert before
    assert pl.read_parquet(tmp_path / "out" / damaged.name / "packets.parquet").height > 300


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    done = bentpipe("trace", tmp_path / "x", "--out", tmp_path)
    assert done.returncode == 2
    assert "no capture" in done.stderr


def test_a_file_that_cannot_be_read_keeps_nothing_from_the_others(captured: Path, tmp_path: Path) -> None:
    files = [tmp_path / name / "client.pcapng" for name in ("one", "two", "three")]
    for file, content in zip(files, (captured.read_bytes(), b"", captured.read_bytes()[:200_000]), strict=True):
        file.parent.mkdir()
        file.write_bytes(content)
    done = bentpipe("trace", *files, "--out", tmp_path / "out", "--json")
    assert done.returncode == 1
    assert f"{files[1]}: the file is empty" in done.stderr
    assert "1 of 3 files cannot be read; 1 of 3 captures are damaged" in done.stderr
    whole, cut = (json.loads(line) for line in done.stdout.splitlines())
    assert cut["damage"]
    for name, summary in (("one", whole), ("three", cut)):
        tables = tmp_path / "out" / name / "client.pcapng"
        assert pl.read_parquet(tables / "packets.parquet")["frame"].max() <= summary["packets"]


def test_what_is_not_read_of_a_capture_is_told(tmp_path: Path) -> None:
    radio = tmp_path / "radio.pcap"
    packet = struct.pack("<IIII", 1, 0, 64, 64) + bytes(64)
    radio.write_bytes(struct.pack("<IHHiIII", 0xA1B2_C3D4, 2, 4, 0, 0, 1 << 16, 127) + 3 * packet)
    done = bentpipe("trace", radio, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "3 of them have link type 127, which is not read" in done.stdout
