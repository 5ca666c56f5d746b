"""Ends that restart go on where they were: what sessions learn of the path is kept in a file of each daemon's."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SATELLITE, Topology, topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe, Transport, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import eventually

GEO = """
name = "geo"
[forward]
rate = "20 Mbit/s"
delay = "300 ms"
queue = "1500 kB"
[return]
rate = "2 Mbit/s"
delay = "300 ms"
queue = "150 kB"
"""
INITIAL_KB = 47
"""The initial window, 32 packets."""
PIPE_KB = 1500
"""What fills the link."""
MISSED_S = 30.0
"""Ten seconds by virtual time (crates/tunnel/tests/tunnel/liveness.rs), and patience with a loaded machine."""
LEARNING_SESSIONS = 5
CHANGED = "the way to the gateway has changed"
KNOWN = re.compile(r'session is up.*known="([\d.]+) Mbit/s, (\d+) ms"')
WINDOW = re.compile(r"flow ended.*window (\d+) kB")


@pytest.fixture
def geo_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bentpipe]:
    """A tunnel over GEO with the satellite controller, whose ends tell of every flow."""
    monkeypatch.setenv("BENTPIPE_LOG", "debug")
    scenario = tmp_path / "geo.toml"
    scenario.write_text(GEO)
    with topology(tmp_path / "run", scenario) as path:
        transport = Transport(controller="satellite", expected_rate="20 Mbit/s", expected_rtt="600 ms")
        yield start_bentpipe(path, transport)


@pytest.mark.long
def test_the_first_session_after_a_restart_of_both_has_left_slow_start_behind(geo_tunnel: Bentpipe) -> None:
    """The window before the first large download is seen after one of 100 bytes, which cannot have opened it."""
    assert first_window_kb(geo_tunnel) <= 4 * INITIAL_KB
    for outcome in curl.warm_up(geo_tunnel.path):
        assert outcome.verdict is Verdict.OK, outcome.detail
    restart(geo_tunnel)
    for file in files(geo_tunnel):
        assert file.stat().st_mode & 0o777 == 0o600
    for end, rate_mbit_s in ((geo_tunnel.gateway, 20), (geo_tunnel.terminal, 2)):
        rate, rtt_ms = known(end)
        assert rate_mbit_s / 3 < rate <= 1.1 * rate_mbit_s
        assert rtt_ms >= 595
    # Half of what was known may leave in the first round (RFC 9959, section 4.3).
    assert first_window_kb(geo_tunnel) >= PIPE_KB / 6
    assert curl.download(geo_tunnel.path, "10MiB").verdict is Verdict.OK


def test_a_damaged_file_is_told_and_costs_nothing_else(own_tunnel: Bentpipe) -> None:
    rubbish = "version = 1\n[path.\n"
    own_tunnel.terminal.stop()
    own_tunnel.gateway.stop()
    for file in files(own_tunnel):
        file.write_text(rubbish)
    own_tunnel.start_gateway()
    own_tunnel.start_terminal()
    for end, file in zip((own_tunnel.gateway, own_tunnel.terminal), files(own_tunnel), strict=True):
        assert f"{file}: TOML parse error at line 2" in end.log.read_text()
        assert file.read_text() == rubbish
    restart_until(own_tunnel, lambda: bool(KNOWN.search(own_tunnel.gateway.log.read_text())))
    rate, _ = known(own_tunnel.gateway)
    assert rate > 1


def test_a_place_that_cannot_be_written_costs_a_warning(
    path: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk, and told once by each end that has something to write."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "nowhere"))
    tunnel = start_bentpipe(path)
    why = f"{tmp_path / 'nowhere' / 'gateway.paths.toml'}: No such file or directory"
    restart_until(tunnel, lambda: why in tunnel.gateway.log.read_text())
    told = tunnel.gateway.log.read_text()
    assert told.count(why) == 1
    assert "not kept over a restart" in told
    assert curl.download(path, "2MB").verdict is Verdict.OK


def test_a_gateway_killed_after_a_change_of_routes_is_missed_for_seconds(
    path: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not until the session's idle timeout of 45 s: there the QUIC library does not recognise the gateway's reset."""
    monkeypatch.setenv("BENTPIPE_LOG", "debug")
    tunnel = start_bentpipe(path)
    path.terminal.ip("route", "add", "10.99.0.0/24", "dev", "sat0")
    path.terminal.ip("address", "add", "10.77.1.99/32", "dev", "sat0")
    path.gateway.ip("route", "replace", "10.77.1.99/32", "dev", "sat0")
    assert curl.download(path, "2MB").verdict is Verdict.OK
    assert CHANGED not in tunnel.terminal.log.read_text(), "the way to the gateway is as before"
    path.terminal.ip("route", "replace", f"{SATELLITE.far4}/32", "dev", "sat0", "src", "10.77.1.99")
    eventually(lambda: CHANGED in tunnel.terminal.log.read_text(), "the terminal notices")
    assert curl.download(path, "2MB").verdict is Verdict.OK
    tunnel.gateway.kill()
    tunnel.start_gateway()
    tunnel.terminal.wait_line("session: up", MISSED_S)
    assert curl.download(path, "2MB").verdict is Verdict.OK


def restart(tunnel: Bentpipe) -> None:
    """Stop both ends in order, and start them again."""
    assert tunnel.terminal.stop() == 0
    assert tunnel.gateway.stop() == 0
    tunnel.start_gateway()
    tunnel.start_terminal()


def restart_until(tunnel: Bentpipe, learnt: Callable[[], bool]) -> None:
    """Carry traffic and restart both ends until one session has learnt something.

    On a machine that is starved it takes several: what the application's pauses bounded says nothing of the path.
    """
    for _ in range(LEARNING_SESSIONS):
        for outcome in curl.warm_up(tunnel.path):
            assert outcome.verdict is Verdict.OK, outcome.detail
        restart(tunnel)
        if learnt():
            return
    pytest.fail(f"{LEARNING_SESSIONS} sessions have learnt nothing of the path")


def files(tunnel: Bentpipe) -> tuple[Path, Path]:
    """Where the gateway and the terminal keep what they know of the path."""
    return (
        tunnel.gateway_config.with_name("gateway.paths.toml"),
        tunnel.terminal_config.with_name("terminal.paths.toml"),
    )


def known(end: Process) -> tuple[float, float]:
    """Rate in Mbit/s and round trip in ms that the last session of an end began with."""
    eventually(lambda: bool(KNOWN.search(end.log.read_text())), "it tells what it begins with")
    rate, rtt_ms = KNOWN.findall(end.log.read_text())[-1]
    return float(rate), float(rtt_ms)


def first_window_kb(tunnel: Bentpipe) -> float:
    """The gateway's window at the end of a flow that carries next to nothing."""

    def windows() -> list[str]:
        return WINDOW.findall(tunnel.gateway.log.read_text())

    before = len(windows())
    assert curl.download(tunnel.path, "first-byte").verdict is Verdict.OK
    eventually(lambda: len(windows()) > before, "the gateway tells of the flow")
    return float(windows()[-1])
