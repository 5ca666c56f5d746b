"""Workloads by real programs over a short path: each is done and checked, or says which program it lacks."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.campaign import commands, directory, emulate, schedule
from bentpipe_lab.errors import MissingCapabilityError, PlanError
from bentpipe_lab.net import host
from bentpipe_lab.workloads import WORKLOADS

ROUND_TRIP_S = 0.05
"""Of short.toml, to the resolver."""
COARSE_S = 0.002
"""Steps of the browsers' clocks."""
PLAN = """\
name = "workloads"
clock = "real"
late_repeats = 0
timeout = 10000
[axes]
scenario = "short.toml"
system = "{system}"
workload = "{workload}"
"""


def measured(
    tmp_path: Path, printed: Any, workload: str, options: Mapping[str, str], system: str = "direct", more: str = ""
) -> dict[str, Any] | None:
    """What came of one run; None, with its verdict checked, where a program that it needs is not installed."""
    (tmp_path / "short.toml").write_text((Path(__file__).parent / "short.toml").read_text())
    file = tmp_path / "plan.toml"
    axes = "".join(f'"workload.{name}" = "{value}"\n' for name, value in options.items())
    file.write_text(PLAN.format(system=system, workload=workload) + axes + more)
    plan, expansion = commands.prepared(file)
    (unit,) = schedule.units(plan, expansion.points, schedule.open_runs(plan, expansion.points, directory.State()))
    emulate.measure_all(unit, tmp_path)
    line: dict[str, Any] = json.loads(printed.readouterr().out)
    lacking = ""
    try:
        WORKLOADS[workload].with_options(options).require()
    except MissingCapabilityError as error:
        lacking = str(error)
    if lacking:
        assert (line["result"]["verdict"], line["result"]["detail"]) == ("program missing", lacking)
        return None
    assert line["result"]["verdict"] in ("ok", "emulator late"), line["result"]["detail"]
    return line


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2", "HTTP/3"])
def test_a_page_is_loaded_over_the_protocol_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, browser: str
) -> None:
    line = measured(tmp_path, capsys, "web page", {"protocol": protocol, "browser": browser})
    if line is None:
        return
    metrics = line["result"]["metrics"]
    assert metrics["response_start_s"] <= metrics["first_contentful_paint_s"] <= metrics["page_load_s"] + 1
    assert len(line["objects"]) == 75
    assert Path(line["files"]["screenshot.png"]).read_bytes().startswith(b"\x89PNG")
    archive = json.loads(Path(line["files"]["page.har"]).read_text())["log"]
    assert {each["request"]["httpVersion"] for each in archive["entries"]} == {protocol}


@pytest.mark.parametrize("page", ["third parties", "chain"])
def test_names_of_third_parties_are_resolved_and_chains_are_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    line = measured(tmp_path, capsys, "web page", {"page": page})
    if line is not None:
        hosts = {each["path"].split("/")[2] for each in line["objects"]}
        assert len(hosts) == (7 if page == "third parties" else 1)


def test_a_repeated_visit_finds_its_objects_in_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = measured(tmp_path, capsys, "web page", {"visit": "repeat"})
    if line is not None:
        assert line["result"]["metrics"]["objects_from_cache"] > 60


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
@pytest.mark.parametrize("protocol", ["HTTP/2", "HTTP/3"])
def test_three_loads_of_a_profile_are_timed_each_and_the_last_is_captured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, browser: str
) -> None:
    options = {"visit": "three loads", "page": "small", "protocol": protocol, "browser": browser}
    line = measured(tmp_path, capsys, "web page", options)
    if line is not None:
        metrics = line["result"]["metrics"]
        assert {f"page_load_{number}_s" for number in (1, 2, 3)} <= set(metrics)
        assert metrics["objects_from_cache"] == 0
        assert 11_000 <= line["samples"][-1]["received_bytes"] < 22_000
        # The capture counts from the first packet, the browser from when it began to connect: with the lookup of the
        # name, which takes a round trip, not in it.
        arrived_s = next(row["at_s"] for row in line["samples"] if row["received_bytes"] >= 11_000)
        assert arrived_s <= line["objects"][0]["complete_s"] + COARSE_S
        assert metrics["name_lookup_s"] >= ROUND_TRIP_S


def test_a_browser_loads_pages_by_http3_through_splitting_proxies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first load finds a server that the proxy has to ask first, the others one that it knows."""
    options = {"protocol": "HTTP/3", "visit": "three loads", "page": "small"}
    mode = '"transport.mode" = "h3-parallel"\n'
    line = measured(tmp_path, capsys, "web page", options, "quic-pep", mode)
    if line is not None:
        assert {f"page_load_{number}_s" for number in (1, 2, 3)} <= set(line["result"]["metrics"])
        assert line["result"]["metrics"]["objects_from_cache"] == 0


@pytest.mark.long
@pytest.mark.parametrize("direction", ["download", "upload"])
def test_iperf3_tells_window_and_round_trip_time_of_the_sender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], direction: str
) -> None:
    line = measured(tmp_path, capsys, "iperf3", {"direction": direction})
    assert line is not None
    assert line["result"]["bytes_received"] > 1_000_000
    assert line["samples"][-1]["received_bytes"] == line["result"]["bytes_received"]
    assert any(row.get("window_bytes") for row in line["samples"])
    assert line["result"]["metrics"]["mean_rtt_s"] > 0


@pytest.mark.parametrize("tls", ["yes", "no"])
def test_a_connection_has_its_moments_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], tls: str) -> None:
    line = measured(tmp_path, capsys, "connection", {"tls": tls})
    assert line is not None
    metrics = line["result"]["metrics"]
    moments = [metrics[name] for name in ("connect_s", "tls_s", "first_byte_s") if name in metrics]
    assert len(moments) == (3 if tls == "yes" else 2)
    assert moments == sorted(moments)


@pytest.mark.parametrize("workload", ["git clone", "rsync", "hls player", "ssh echo"])
def test_an_application_does_its_work(tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str) -> None:
    line = measured(tmp_path, capsys, workload, {})
    if line is not None:
        assert line["result"]["seconds"] > 0.05
        assert line["result"]["bytes_received"] > 0


@pytest.mark.long
@pytest.mark.parametrize("load", ["download", "upload"])
def test_delays_are_told_beside_the_load(tmp_path: Path, capsys: pytest.CaptureFixture[str], load: str) -> None:
    line = measured(tmp_path, capsys, "delay under load", {"load": load})
    if line is not None:
        metrics = line["result"]["metrics"]
        assert metrics["load_mbit_s"] > 1
        assert metrics["rpm"] > 0
        assert metrics["call_loss_percent"] < 100
        assert metrics["ping_median_s"] > 0.05
        assert metrics["request_p95_s"] >= metrics["request_median_s"] > metrics["ping_median_s"]


@pytest.mark.long
@pytest.mark.parametrize("direction", ["download", "upload"])
def test_quic_is_measured_at_both_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str], direction: str) -> None:
    line = measured(tmp_path, capsys, "perf", {"direction": direction, "initial_window": "32"})
    assert line is not None
    metrics = line["result"]["metrics"]
    assert metrics["goodput_mbit_s"] > 1
    # A round trip of the path is 50 ms. A client that sends may have nothing sent back to it.
    assert metrics["establishment_s"] > 0.05
    assert direction == "upload" or metrics["first_byte_s"] > metrics["establishment_s"]
    assert any(row.get("window_bytes") for row in line["samples"])


def test_qlogs_of_both_ends_are_kept_and_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = measured(tmp_path, capsys, "perf", {"seconds": "1", "qlog": "yes"})
    assert line is not None
    assert set(line["files"]) == {"client-1.sqlog.gz", "server-1.sqlog.gz"}
    for place in line["files"].values():
        subprocess.run([host.binary(), "trace", place, "--out", tmp_path / "trace"], check=True, capture_output=True)
    with pytest.raises(PlanError, match='qlog = "yes": over TCP there is none'):
        measured(tmp_path, capsys, "perf", {"over": "TCP", "qlog": "yes"})


def test_perf_goes_over_tcp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = measured(tmp_path, capsys, "perf", {"seconds": "2", "over": "TCP"})
    if line is not None:
        assert line["result"]["metrics"]["goodput_mbit_s"] > 1
        assert line["result"]["metrics"]["first_byte_s"] > 0.05


def test_perf_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # With 0-RTT the request does not wait for the handshake: its answer is there after a round trip of 50 ms, where
    # otherwise it takes two at least. A busy machine may be late by the other; not three times.
    seen = []
    for attempt in range(3):
        (tmp_path / str(attempt)).mkdir()
        line = measured(tmp_path / str(attempt), capsys, "perf", {"seconds": "2", "resumed": "yes"})
        if line is None:
            return
        metrics = line["result"]["metrics"]
        assert metrics["goodput_mbit_s"] > 1
        assert metrics["first_byte_s"] > 0.05
        seen.append((metrics["first_byte_s"], metrics["establishment_s"]))
        if metrics["first_byte_s"] < 2 * metrics["establishment_s"]:
            return
    raise AssertionError(f"first byte and establishment, seconds: {seen}")


def test_a_controller_that_nobody_has_is_told_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlanError, match='controller "no-such-controller" is unknown; there are satellite'):
        measured(tmp_path, capsys, "perf", {"controller": "no-such-controller"})
