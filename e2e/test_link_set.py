"""`bentpipe link set` and `link show`: a link that is changed while it carries packets."""

import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from emulated import GATEWAY, Emulated, bentpipe, emulated

SLACK_MS = 20.0
"""What a loaded machine may add to the best of eight."""


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Emulated]:
    with emulated(tmp_path) as built:
        yield built


def best(link: Emulated, target: str = GATEWAY) -> float:
    """The best round-trip time of some pings, all of which come back."""
    times = link.ping(target=target)
    assert len(times) == 8
    return min(times)


def test_a_delay_is_changed_and_the_certificate_tells(link: Emulated) -> None:
    assert 30 <= best(link) < 30 + SLACK_MS
    link.set("delay=100 ms")
    assert 200 <= best(link) < 200 + SLACK_MS
    link.set("--direction", "forward", "delay=10 ms", "rate=10 Mbit/s")
    assert 110 <= best(link) < 110 + SLACK_MS
    changes = link.end().fields["changes"]
    assert [change["what"] for change in changes] == ["delay=100 ms", "delay=10 ms, rate=10 Mbit/s"]
    assert [change["direction"] for change in changes] == ["both", "forward"]
    assert 0 < changes[0]["at_s"] < changes[1]["at_s"]


def test_an_interval_tells_its_own_changes_only(tmp_path: Path) -> None:
    with emulated(tmp_path) as link:
        link.set("delay=20 ms")
        intervals = [_interval(link), _interval(link)]
        assert '"what":"delay=20 ms"' in intervals[0]
        assert '"changes":[]' in intervals[1]


def _interval(link: Emulated) -> str:
    link.emulator.signal(signal.SIGUSR1)
    return link.emulator.wait_line("interval ")


def test_loss_takes_all_and_gives_back(link: Emulated) -> None:
    link.set("loss=100 %", "--direction", "return")
    assert link.ping(patience_s=1) == []
    link.set("loss=0 %")
    assert len(link.ping()) == 8
    forward, back = link.show()["directions"]
    assert (forward["dropped"]["loss"], back["dropped"]["loss"]) == (0, 8)


def test_what_else_a_scenario_says_of_a_direction_is_changed(link: Emulated) -> None:
    link.set("duplicate=100 %", "--direction", "forward")
    link.ping()
    assert link.show()["directions"][0]["duplicated"] == 8
    link.set("duplicate=0 %", 'jitter={ up_to = "1 ms" }', 'reorder={ chance = "100 %", by = "50 ms" }', "corrupt=0 %")
    assert min(link.ping()) >= 130
    link.set('reorder={ chance = "0 %", by = "50 ms" }', "queue=1 packet", "rate=8 kbit/s")
    link.ping(patience_s=1)
    assert link.show()["directions"][1]["dropped"]["queue"] > 0


def test_an_outage_of_some_time_ends_by_itself(link: Emulated) -> None:
    link.set("outage=2 s")
    began = time.monotonic()
    assert link.ping(patience_s=1) == []
    while not link.ping(1, patience_s=1):
        assert time.monotonic() - began < 20
    assert time.monotonic() - began > 1.9
    link.set("outage=1 min")
    link.set("outage=false")
    assert len(link.ping()) == 8


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (["speed=5"], ["speed=5", "unknown field `speed`", "`rate`"]),
        (["delay=1 ms", "rate=10 Mbit"], ["rate=10 Mbit"]),
        (["delay=1 ms", "loss=101 %"], ["loss=101 %"]),
        (["delay=1 ms", "outage=later"], ["outage=later"]),
        (["delay=1 ms", "switch=nowhere"], ["nowhere", "no such file"]),
        (["--link", "moon", "delay=1 ms"], ["moon", "satellite"]),
        (["delay=1 ms", "new_address=10.98.0.9"], ["new_address=10.98.0.9", "/24"]),
        (["delay=1 ms", "new_address=224.0.0.1/24"], ["new_address=224.0.0.1/24", "multicast"]),
        ([], ["CHANGE"]),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(link: Emulated, changes: list[str], named: list[str]) -> None:
    done = link.link("set", *changes)
    assert done.returncode == 2, done.stderr
    for word in named:
        assert word in done.stderr
    assert best(link) >= 30
    assert link.show()["changes"] == []


def test_an_address_that_cannot_be_leaves_all_as_it_was(link: Emulated) -> None:
    """The device has the second one already, from somebody else: the first must go again."""
    link.terminal.ip("address", "add", "10.98.0.7/24", "dev", "sat0")
    before = link.terminal.ip("address", "show", "sat0")
    done = link.link("set", "delay=1 ms", "new_address=10.98.0.8/24,10.98.0.7/24")
    assert done.returncode == 1
    assert "10.98.0.7/24" in done.stderr
    assert link.terminal.ip("address", "show", "sat0") == before
    assert best(link) >= 30
    assert link.show()["changes"] == []


def test_two_emulators_are_told_apart(tmp_path: Path) -> None:
    with emulated(tmp_path / "one") as one, emulated(tmp_path / "two") as two:
        one.set("delay=50 ms")
        assert best(one) >= 100
        assert best(two) < 100
        unnamed = bentpipe("link", "show")
        assert unnamed.returncode == 2
        assert one.control in unnamed.stderr
        assert two.control in unnamed.stderr


def test_an_emulator_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with emulated(tmp_path / "ended") as ended:
        ended.end()
        assert not Path(ended.control).exists()
        done = ended.link("set", "delay=1 ms")
        assert done.returncode == 1
        assert ended.control in done.stderr
        assert "no emulator listens" in done.stderr
    socket = tmp_path / "control.sock"
    with emulated(tmp_path / "killed", options=["--control", socket]) as killed:
        killed.emulator.kill()
        done = killed.link("show")
        assert done.returncode == 1
        assert "is gone" in done.stderr
    with emulated(tmp_path / "next", options=["--control", socket]) as following:
        assert best(following) >= 30, "it takes the place of one that was killed"


def test_a_socket_in_use_is_left_to_its_emulator(tmp_path: Path, link: Emulated) -> None:
    argv: list[str | Path] = ["emulate", tmp_path / "scenario.toml", "--control", link.control]
    argv += ["--terminal", link.terminal.name, "--gateway", link.gateway.name]
    done = bentpipe(*argv)
    assert done.returncode == 1
    assert "another emulator listens there" in done.stderr
    assert link.show()["scenario"] == "test"


def test_the_socket_is_for_its_owner_alone(link: Emulated) -> None:
    assert stat.S_IMODE(Path(link.control).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(link.control).parent.stat().st_mode) == 0o700


def test_show_is_readable(link: Emulated) -> None:
    link.ping()
    link.set("rate=5 Mbit/s")
    text = link.link("show").stdout
    assert "satellite forward" in text
    assert "rate=5 Mbit/s" in text


def test_another_scenario_takes_over(link: Emulated, tmp_path: Path) -> None:
    far = tmp_path / "far.toml"
    far.write_text((tmp_path / "scenario.toml").read_text().replace("15 ms", "80 ms"))
    link.set("switch=far")
    assert 160 <= best(link) < 160 + SLACK_MS
    link.set(f"switch={host.REPOSITORY}/scenarios/bujari-terrestrial.toml")
    assert 60 <= best(link) < 60 + SLACK_MS


def test_the_terminal_gets_another_address_and_keeps_its_routes(link: Emulated) -> None:
    link.terminal.ip("route", "add", "default", "via", GATEWAY, "dev", "sat0")
    link.gateway.ip("address", "add", "10.99.0.1/32", "dev", "lo")
    link.set("new_address=true")
    assert "10.98.0.3/24" in link.terminal.ip("-4", "address", "show", "sat0")
    assert "10.98.0.1/24" not in link.terminal.ip("-4", "address", "show", "sat0")
    assert best(link, "10.99.0.1") >= 30
    link.set("new_address=10.98.0.9/24", "delay=25 ms")
    assert best(link, "10.99.0.1") >= 50
    assert "src 10.98.0.9" in link.terminal.ip("route", "get", "10.99.0.1")
    assert [change.get("addresses") for change in link.end().fields["changes"]] == [["10.98.0.3/24"], ["10.98.0.9/24"]]
