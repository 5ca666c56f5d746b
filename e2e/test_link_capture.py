"""`bentpipe emulate --capture`: what Wireshark's tshark reads of it."""

import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bentpipe_lab.net.process import Process
from emulated import GATEWAY, Emulated, bentpipe, emulated

POINTS = ("return in", "return out", "forward in", "forward out", "return dropped", "forward dropped")
TLS_PORT = 4430


@dataclass(frozen=True)
class Packet:
    """A packet of a capture."""

    interface: str
    time_s: float
    number: str
    comment: str


def read(capture: Path) -> list[Packet]:
    """The pings in a capture."""
    printed = tshark(
        capture, "-Y", "icmp", "-T", "fields", "-e", "frame.interface_name", "-e", "frame.time_epoch",
        "-e", "icmp.seq", "-e", "frame.comment",
    )  # fmt: skip
    rows = (line.split("\t") for line in printed.splitlines())
    return [Packet(name, float(time), number, comment) for name, time, number, comment in rows]


def tshark(capture: Path, *arguments: str) -> str:
    done = subprocess.run(["tshark", "-r", capture, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_packet_is_seen_at_all_four_points_at_its_moments(tmp_path: Path) -> None:
    with emulated(tmp_path, options=["--capture", tmp_path]) as link:
        assert len(link.ping(10)) == 10
        link.set("loss=100 %", "--direction", "forward")
        assert link.ping(3, patience_s=1) == []
        link.end()
    packets = read(tmp_path / "test.pcapng")
    seen = {name: [packet for packet in packets if packet.interface == f"satellite {name}"] for name in POINTS}
    assert [len(seen[name]) for name in POINTS] == [13, 13, 13, 10, 0, 3]
    assert {packet.comment for packet in seen["forward dropped"]} == {"loss"}
    assert {packet.comment for name in POINTS[:4] for packet in seen[name]} == {""}
    for direction in ("forward", "return"):
        pairs = zip(seen[f"{direction} in"], seen[f"{direction} out"], strict=False)
        delays = [out.time_s - into.time_s for into, out in pairs]
        assert min(delays) >= 0.015
        assert statistics.median(delays) < 0.030


def test_the_capture_is_for_its_owner_alone(tmp_path: Path) -> None:
    capture = tmp_path / "own.pcapng"
    with emulated(tmp_path, options=["--capture", capture]):
        assert capture.stat().st_mode & 0o777 == 0o600


def test_keys_in_the_capture_decrypt_it(tmp_path: Path) -> None:
    keys, capture = tmp_path / "keys.log", tmp_path / "tls.pcapng"
    with emulated(tmp_path, options=["--capture", capture, "--key-log", keys]) as link:
        with tls_server(link):
            fetch = ["curl", "-sk", "--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
            argv = ["env", f"SSLKEYLOGFILE={keys}", *fetch, f"https://{GATEWAY}:{TLS_PORT}/"]
            assert "TLS" in link.terminal.run(*argv)
        link.end()
    keys.unlink()
    assert "GET / HTTP/1.1" in tshark(capture, "-d", f"tcp.port=={TLS_PORT},tls", "-Y", "http.request")


@contextmanager
def tls_server(link: Emulated) -> Iterator[None]:
    """A web server with a key of its own in the gateway's namespace."""
    key, certificate = link.directory / "key.pem", link.directory / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(
        [*request, "-keyout", key, "-out", certificate, "-subj", "/CN=test"], check=True, capture_output=True
    )
    argv: list[str | Path] = [
        "openssl",
        "s_server",
        "-www",
        "-accept",
        str(TLS_PORT),
        "-key",
        key,
        "-cert",
        certificate,
    ]
    server = Process("server", link.gateway.command(argv), link.directory)
    try:
        yield
    finally:
        server.stop()


@contextmanager
def small_disk(where: Path) -> Iterator[Path]:
    """A file system with room for 16 KiB."""
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "small", where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


@pytest.mark.parametrize(("option", "named"), [("--capture", "the capture"), ("--records", "the records")])
def test_a_full_disk_is_told_and_stops_nothing(tmp_path: Path, option: str, named: str) -> None:
    with small_disk(tmp_path / "small") as small:
        with emulated(tmp_path, options=[option, small / "packets"]) as link:
            flood = ["ping", "-q", "-i", "0.001", "-c", "600", "-s", "1400", GATEWAY]
            assert " 0% packet loss" in link.terminal.run(*flood)
            assert len(link.ping()) == 8
            certificate = link.end()
        assert not certificate.valid
        (reason,) = (reason for reason in certificate.reasons if named in reason)
        assert "No space left on device" in reason


def test_a_key_log_needs_a_capture(tmp_path: Path) -> None:
    done = bentpipe("emulate", "x.toml", "--terminal", "a", "--gateway", "b", "--key-log", tmp_path / "keys")
    assert done.returncode == 2
    assert "--capture" in done.stderr
