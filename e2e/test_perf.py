"""`bentpipe perf` between two namespaces with an emulated link: what it measures, and what it says when it cannot."""

import json
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from emulated import GATEWAY, LONGER, TERMINAL, bentpipe
from perf_link import RTT_NS, Measured, certificate_and_key, measuring

FAST = LONGER.replace("20 Mbit/s", "200 Mbit/s").replace("250 kB", "2.5 MB")
MIB = 1 << 20
FILE = 300_000
"""Bytes that others' programs are asked for: a few round trips."""
AIOQUIC_PERF = Path(__file__).parent / "clients" / "aioquic_perf.py"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """A link and a server for the tests of this module."""
    with measuring(tmp_path_factory.mktemp("perf")) as server:
        yield server


def test_a_download_has_all_its_figures(measured: Measured) -> None:
    report = measured.report("--download", "4 MiB", "--interval", "200 ms")
    assert report["schema"] == "bentpipe/perf/1"
    assert report["received_bytes"] == 4 * MIB
    assert sum(interval["received_bytes"] for interval in report["intervals"]) == 4 * MIB
    (connection,) = report["connections"]
    establishment = connection["establishment"]
    assert establishment["done_ns"] >= RTT_NS
    assert establishment["confirmed_ns"] >= 2 * RTT_NS
    assert connection["first_byte_ns"] >= 2 * RTT_NS
    assert connection["sender"]["least_rtt_ns"] >= RTT_NS
    # 20 Mbit/s at the IP level take at least so long.
    assert report["duration_ns"] >= 4 * MIB * 8 / 20e6 * 1e9 + 2 * RTT_NS


def test_an_upload_for_a_time_arrives_whole_and_its_sender_is_seen(measured: Measured) -> None:
    report = measured.report("--upload", "2 s", "--controller", "newreno", "--initial-window", "32")
    assert report["parameters"]["controller"] == "newreno"
    assert report["sent_bytes"] > MIB
    last = report["intervals"][-1]["senders"][0]
    assert last["window_bytes"] > 0
    assert last["acknowledged_bytes"] >= report["sent_bytes"]
    assert last["smoothed_rtt_ns"] >= RTT_NS


def test_a_client_that_now_and_then_does_not_run_sees_no_round_trip_shorter_than_the_path(tmp_path: Path) -> None:
    """The QUIC library reads its clock once and then its socket: what came in between must not count as early."""
    with measuring(tmp_path, scenario=FAST) as measured:
        report = tmp_path / "report.json"
        argv = [
            *(host.binary(), "perf", "client", GATEWAY, "--ca", measured.certificate, "--name", "perf.test"),
            *("--upload", "8 s", "--controller", "newreno", "--initial-window", "500", "--json", report),
        ]
        client = Process("client", measured.link.terminal.command([str(word) for word in argv]), tmp_path)
        try:
            # Steps of no simple ratio to the link's and the client's own times.
            for number in range(120):
                time.sleep(0.02 + 0.03 * (number * 0.618 % 1))
                client.signal(signal.SIGSTOP)
                time.sleep(0.02)
                client.signal(signal.SIGCONT)
            assert client.wait(30) == 0, client.tail()
        finally:
            client.signal(signal.SIGCONT)
            client.stop()
        (connection,) = json.loads(report.read_text())["connections"]
        assert connection["sender"]["least_rtt_ns"] >= RTT_NS - 500_000


def test_latency_under_load_is_more_than_without(measured: Measured) -> None:
    idle = measured.report("--requests", "10")["requests"]
    assert idle["count"] == 10
    assert idle["least_ns"] >= RTT_NS
    loaded = measured.report("--requests", "3 s", "--download", "3 s", "--window", "16 MiB")["requests"]
    assert loaded["most_ns"] > idle["p50_ns"]


def test_many_streams_on_many_connections_and_both_ways(measured: Measured) -> None:
    report = measured.report(
        *("--download", "1 MiB", "--upload", "1 MiB", "--streams", "4", "--connections", "3"),
    )
    assert [each["received_bytes"] for each in report["connections"]] == [MIB] * 3
    assert [each["sent_bytes"] for each in report["connections"]] == [MIB] * 3


def test_a_resumed_connection_sends_its_request_at_once(measured: Measured) -> None:
    (connection,) = measured.report("--resume", "--download", "1 B")["connections"]
    assert connection["establishment"]["early_data"] is True
    first = connection["first_byte_ns"]
    assert first >= RTT_NS
    fresh = measured.report("--download", "1 B")["connections"][0]["first_byte_ns"]
    assert fresh - first > RTT_NS / 2


def test_datagrams_and_iperf3s_shape(measured: Measured, tmp_path: Path) -> None:
    iperf3 = tmp_path / "iperf3.json"
    report = measured.report(
        *("--datagrams", "800 kbit/s", "--datagram-time", "2 s", "--iperf3-json", iperf3, "--download", "2 s"),
    )
    datagrams = report["datagrams"]
    assert datagrams["sent"] == 200
    assert datagrams["answered"] <= datagrams["arrived"] <= 200
    assert datagrams["answered"] > 100
    assert datagrams["round_trips"]["least_ns"] >= RTT_NS
    document = json.loads(iperf3.read_text())
    assert document["end"]["sum_received"]["bytes"] == report["received_bytes"]
    assert len(document["intervals"]) == len(report["intervals"])


def test_a_path_is_kept_in_a_file(measured: Measured, tmp_path: Path) -> None:
    path = tmp_path / "path.toml"
    upload = ("--upload", "4 MiB", "--path", path)
    measured.report(*upload)
    kept = tomllib.loads(path.read_text())
    assert kept["rate"].endswith("bit/s")
    assert kept["round_trip"].endswith("s")
    measured.report(*upload)
    path.write_text("rate = 5")
    done = measured.client(*upload)
    assert done.returncode == 2
    assert "path.toml" in done.stderr


def test_records_and_a_table_for_people(measured: Measured, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    done = measured.client("--upload", "2 MiB", "--records", records, "--changes", "--interval", "100 ms")
    assert done.returncode == 0, done.stderr
    assert "goodput" in done.stdout
    assert "established after" in done.stdout
    kinds = {json.loads(line)["record"] for line in records.read_text().splitlines()}
    assert kinds == {"interval", "change"}


@pytest.mark.parametrize("over", ["quic", "tcp"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_what_was_measured_before_a_signal_is_reported(
    measured: Measured, tcp: Measured, tmp_path: Path, over: str, end: signal.Signals
) -> None:
    report, records = tmp_path / "report.json", tmp_path / "records.jsonl"
    trusts = ("--over", "tcp") if over == "tcp" else ("--ca", measured.certificate, "--name", "perf.test")
    options = (*trusts, "--download", "600 s", "--interval", "100 ms", "--json", report, "--records", records)
    command = measured.link.terminal.command([host.binary(), "perf", "client", GATEWAY, *options])
    client = Process("client", command, tmp_path)
    try:
        for _ in range(12):
            client.wait_line(" ")
        client.signal(end)
        assert client.wait(10.0) == 1
    finally:
        client.kill()
    assert "stopped before it was done" in client.log.read_text()
    read = json.loads(report.read_text())
    assert not read["ok"]
    assert read["received_bytes"] > 0
    intervals = [json.loads(line) for line in records.read_text().splitlines()]
    assert sum(each["received_bytes"] for each in intervals) == read["received_bytes"]
    server = measured if over == "quic" else tcp
    done = server.client("--download", "1 kB", trusts=trusts)
    assert done.returncode == 0, "the server goes on"
    for _ in range(2 if over == "tcp" else 0):
        tcp.server.wait_line("{")  # not for the next test


def test_a_server_that_is_stopped_reports_what_it_has_sent(measured: Measured, tmp_path: Path) -> None:
    report, certificate = tmp_path / "report.json", tmp_path / "server.pem"
    listen = ("--listen", f"{GATEWAY}:4436", "--name", "perf.test", "--certificate-out", certificate, "--json", report)
    server = Process("stopped", measured.link.gateway.command([host.binary(), "perf", "server", *listen]), tmp_path)
    trust = ("--ca", certificate, "--name", "perf.test")
    argv: list[str | Path] = [host.binary(), "perf", "client", f"{GATEWAY}:4436", *trust, "--download", "600 s"]
    try:
        server.wait_line("perf server on")
        client = Process("client", measured.link.terminal.command(argv), tmp_path)
        for _ in range(3):
            client.wait_line(" ")
    finally:
        code = server.stop()
    assert code == 0
    assert client.wait() == 1
    assert "the server is stopped" in client.log.read_text()
    read = json.loads(report.read_text())
    assert not read["ok"]
    assert read["sent_bytes"] > 0


def test_a_full_disk_keeps_the_other_results(measured: Measured, tmp_path: Path) -> None:
    for full, kept in (("--json", "--iperf3-json"), ("--records", "--json"), ("--iperf3-json", "--json")):
        report = tmp_path / f"after{full}"
        done = measured.client("--download", "10 kB", full, "/dev/full", kept, report)
        assert done.returncode == 1
        assert "/dev/full: No space left on device" in done.stderr
        assert json.loads(report.read_text())


def test_what_connections_do_is_written_for_trace(measured: Measured, tmp_path: Path) -> None:
    qlogs = tmp_path / "qlog"
    report = measured.report("--download", "100 kB", "--qlog", qlogs)
    (own,) = qlogs.iterdir()
    _, connection, _ = own.name.split("-")
    assert list(measured.qlogs.glob(f"*-{connection}-server.sqlog")), "both ends know the connection by one ID"
    done = bentpipe("trace", own, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["packets"] > 70
    sent = report["connections"][0]["sender"]["sent_packets"]
    assert own.read_text().count('"quic:packet_sent"') >= sent
    done = measured.client("--download", "1 B", "--qlog", own / "below")
    assert done.returncode == 2
    assert str(own / "below") in done.stderr


def test_a_fingerprint_is_enough_and_another_is_not(measured: Measured) -> None:
    done = measured.client("--download", "1 kB", trusts=("--fingerprint", measured.fingerprint))
    assert done.returncode == 0, done.stderr
    other = "sha256:" + "A" * 43
    done = measured.client("--download", "1 kB", trusts=("--fingerprint", other))
    assert done.returncode == 1
    assert "not trusted" in done.stderr
    done = measured.client("--download", "1 kB", trusts=("--ca", measured.certificate, "--name", "other.test"))
    assert done.returncode == 1
    assert "not trusted" in done.stderr


def test_a_server_that_is_not_there(measured: Measured) -> None:
    done = measured.client("--timeout", "1 s", trusts=("--fingerprint", measured.fingerprint, "--resume"))
    assert done.returncode == 0, done.stderr
    command = [host.binary(), "perf", "client", f"{GATEWAY}:9", "--timeout", "1 s", "--ca", measured.certificate]
    done = subprocess.run(
        measured.link.terminal.command([str(word) for word in command]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no answer from" in done.stderr


@pytest.fixture(scope="module")
def tcp(measured: Measured) -> Iterator[Measured]:
    """A server over TCP on the same link."""
    argv = [str(host.binary()), "perf", "server", "--over", "tcp", "--json", "-", "--controller", "reno"]
    server = Process("tcp-server", measured.link.gateway.command(argv), measured.link.directory)
    server.wait_line("perf server on")
    yield Measured(measured.link, server, measured.certificate, "", measured.qlogs)
    server.stop()


def _over_tcp(tcp: Measured, *options: str) -> dict[str, Any]:
    done = tcp.client("--json", "-", *options, trusts=("--over", "tcp"))
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_tcp_has_the_same_report_and_the_kernels_figures(tcp: Measured) -> None:
    report = _over_tcp(tcp, "--download", "2 MiB", "--upload", "2 MiB", "--controller", "cubic")
    assert report["transport"] == "tcp"
    assert report["parameters"]["controller"] == "cubic"
    assert report["received_bytes"] == report["sent_bytes"] == 2 * MIB
    (connection,) = report["connections"]
    assert connection["establishment"]["done_ns"] >= RTT_NS
    assert connection["sender"]["sent_bytes"] >= 2 * MIB
    assert connection["sender"]["least_rtt_ns"] >= RTT_NS
    assert connection["sender"]["packet_bytes"] >= 1000
    uploads = [json.loads(tcp.server.wait_line("{")) for _ in range(2)]
    assert sorted(each["received_bytes"] for each in uploads) == [0, 2 * MIB]
    assert {each["parameters"]["controller"] for each in uploads} == {"reno"}


def test_tcp_downloads_for_a_time_and_requests(tcp: Measured) -> None:
    report = _over_tcp(tcp, "--download", "2 s", "--requests", "3")
    assert report["received_bytes"] > MIB
    # Each request has a connection of its own: a round trip before it.
    assert report["requests"]["count"] == 3
    assert report["requests"]["most_ns"] >= 2 * RTT_NS


def test_tcp_begins_with_the_window_that_was_asked_for_and_leaves_no_routes(tcp: Measured) -> None:
    rules = tcp.link.terminal.ip("rule")
    report = _over_tcp(tcp, "--upload", "200 kB", "--initial-window", "42", "--interval", "10 ms")
    assert report["parameters"]["initial_window_packets"] == 42
    first = report["intervals"][0]["senders"][0]
    assert first["window_bytes"] == 42 * first["packet_bytes"]
    assert tcp.link.terminal.ip("rule") == rules


def test_tcp_without_a_server_or_with_an_unknown_controller(tcp: Measured) -> None:
    done = tcp.client("--over", "tcp", "--controller", "nosuch", trusts=("--download", "1 kB"))
    assert done.returncode == 1
    assert "nosuch" in done.stderr
    assert "cubic" in done.stderr
    argv = [str(host.binary()), "perf", "client", f"{GATEWAY}:9", "--over", "tcp"]
    done = subprocess.run(tcp.link.terminal.command(argv), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "refused" in done.stderr


@pytest.mark.parametrize("amount", [("--download", "1 kB"), ("--download", "60 s"), ("--upload", "1 kB")])
def test_a_tcp_server_that_never_answers_is_given_up_and_reported(amount: tuple[str, str], tmp_path: Path) -> None:
    report, iperf3 = tmp_path / "report.json", tmp_path / "iperf3.json"
    outputs = ("--json", str(report), "--iperf3-json", str(iperf3))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = bentpipe("perf", "client", f"127.0.0.1:{port}", "--over", "tcp", *amount, "--stall", "1 s", *outputs)
    assert done.returncode == 1
    assert "stalled: nothing has moved for 1 s" in done.stderr
    assert "stalled" in json.loads(report.read_text())["error"]
    # Nobody listens there any more.
    done = bentpipe("perf", "client", f"127.0.0.1:{port}", "--over", "tcp", *outputs)
    assert done.returncode == 1
    read = json.loads(report.read_text())
    assert not read["ok"]
    assert "refused" in read["error"]
    assert read["connections"] == []
    assert json.loads(iperf3.read_text())["error"] == read["error"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--controller", "cubik"], "cubic"),
        (["--controller", "bbr3", "--no-pacing"], "this controller is a rate"),
        (["--over", "tcp", "--no-pacing"], "no effect over TCP"),
        (["--stall", "0 s"], "100 ms to"),
        (["--json", "-", "--iperf3-json", "-"], "one of them may be"),
        (["--over", "tcp", "--packet", "1"], "88 to 32767"),
        (["-4", "-6"], "cannot be used with"),
        (["--initial-window", "1"], "2 to 1000 packets"),
        (["--controller", "fixed"], "contracted_rate"),
        (["--controller", "cubic", "--contracted-rate", "5 Mbit/s"], "has no effect"),
        (["--download", "10"], "neither a number of bytes"),
        (["--download", "10 s", "--interval", "0 s"], "at least 1 ms"),
        (["--request-size", "10 B"], "--requests"),
        (["--requests", "5", "--request-size", "4 B"], "at least 8 bytes"),
        (["--resume", "--connections", "2"], "--resume"),
        (["--quic-version", "3"], "possible values: 1, 2"),
        (["--packet", "600"], "1200 to 9000"),
        (["--fingerprint", "sha256:x"], "43 characters"),
        (["--changes"], "--records"),
        (["--datagrams", "1 Mbit/s", "--upload", "1 s"], "datagrams beside an upload"),
        (["--over", "tcp", "--resume"], "no meaning over TCP"),
        (["--over", "tcp", "--ack-threshold", "3"], "no effect over TCP"),
        (["--over", "tcp", "--initial-window", "0"], "1 to 1000 packets"),
        (["--streams", "2", "--requests", "5"], "2 streams without a transfer"),
        (["--controller", "bbr3", "--path", "nowhere"], "--path has no effect with the controller bbr3"),
    ],
)
def test_what_cannot_be_is_refused_with_its_remedy(options: list[str], said: str) -> None:
    done = bentpipe("perf", "client", "127.0.0.1", *options)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    "option", [("--name", "X"), ("--certificate-out", "X"), ("--www", "."), ("--certificate", "X", "--key", "X")]
)
def test_a_server_over_tcp_refuses_what_has_no_effect_there(option: tuple[str, ...]) -> None:
    done = bentpipe("perf", "server", "--over", "tcp", "--listen", "127.0.0.1:0", *option)
    assert done.returncode == 2
    assert f"{option[0]} has no effect over TCP" in done.stderr


@pytest.mark.parametrize("over", ["quic", "tcp"])
@pytest.mark.parametrize("first", ["silent", "refuses"])
def test_of_a_name_with_several_addresses_the_first_that_answers_is_measured(
    measured: Measured, tcp: Measured, tmp_path: Path, over: str, first: str
) -> None:
    # Nobody has the first on the link; at the client's own address nobody listens.
    unanswered = "10.98.0.99" if first == "silent" else TERMINAL
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{unanswered} perf.test\n{GATEWAY} perf.test\n")
    mount = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
    wrapped = ["unshare", "--mount", "sh", "-c", mount, "sh", str(hosts)]
    trusts = ["--over", "tcp"] if over == "tcp" else ["--ca", str(measured.certificate)]
    options = ["--timeout", "2 s", "--download", "100 kB", "--json", "-", *trusts]
    where = (tcp if over == "tcp" else measured).link.terminal
    argv = where.command([*wrapped, host.binary(), "perf", "client", "perf.test", *options])
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["peer"] == f"{GATEWAY}:4433"
    assert report["received_bytes"] == 100_000
    assert f"{unanswered}:4433" in done.stderr
    assert "the next address" in done.stderr


def test_another_stacks_perf_client_is_answered_on_streams_of_both_kinds(measured: Measured) -> None:
    argv = [sys.executable, AIOQUIC_PERF, "client", measured.certificate, GATEWAY, "4433", str(FILE), "50000"]
    command = measured.link.terminal.command([str(word) for word in argv])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(FILE), str(FILE)]
    while (report := json.loads(measured.server.wait_line("{")))["received_bytes"] != 2 * 50_000:
        pass  # of another client
    assert report["sent_bytes"] == 2 * FILE


def test_another_stacks_perf_server_is_measured(measured: Measured, tmp_path: Path) -> None:
    certificate, key = certificate_and_key(tmp_path)
    argv = [sys.executable, AIOQUIC_PERF, "server", certificate, key, GATEWAY, "4435"]
    server = Process("aioquic-perf", measured.link.gateway.command([str(word) for word in argv]), tmp_path)
    try:
        server.wait_line("listening")
        options = ("--download", str(FILE) + " B", "--upload", "100 kB", "--streams", "3", "--requests", "4")
        trust = ("--ca", certificate, "--name", "perf.test")
        argv = [host.binary(), "perf", "client", f"{GATEWAY}:4435", *trust, *options, "--json", "-"]
        command = measured.link.terminal.command([str(word) for word in argv])
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["received_bytes"] == FILE + 4 * 1000
        assert report["sent_bytes"] == 100_000 + 4 * (100 - 8)
        assert report["requests"]["count"] == 4
    finally:
        server.stop()
