"""A campaign in real time: real programs over an emulated link, and the same points in virtual time beside them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from bentpipe_lab.campaign import commands, directory, emulate, engine, journal, schedule
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.campaign.store import PROVENANCE, RESULT, SAMPLES
from bentpipe_lab.net import netns
from bentpipe_lab.net.topology import GROUND, Topology
from bentpipe_lab.programs import Debian, Program
from bentpipe_lab.records import tables
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import campaign as report
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings
from bentpipe_lab.systems.direct import Direct
from conversation import PATIENCE_S

PLAN = """\
name = "both"
clock = ["virtual", "real"]
repetitions = 2
late_repeats = 0
timeout = 1000
[axes]
scenario = "short.toml"
system = ["direct", "bentpipe"]
workload = ["first byte", "download 2 MB", "page HTTP/2"]
controller = "cubic"
"""


def begun(tmp_path: Path, text: str = PLAN) -> directory.Campaign:
    (tmp_path / "short.toml").write_text((Path(__file__).parent / "short.toml").read_text())
    file = tmp_path / "plan.toml"
    file.write_text(text)
    plan, expansion = commands.prepared(file)
    return directory.begin(plan, expansion, tmp_path / "campaign", None)


def execute(campaign: directory.Campaign) -> engine.Ending:
    return engine.execute(campaign, Progress(Console(file=io.StringIO())))


def noted(campaign: directory.Campaign) -> Counter[tuple[str, int]]:
    events = journal.read(campaign.directory / directory.JOURNAL)
    return Counter((event["point"], event["repetition"]) for event in events if event["event"] == "run")


@pytest.mark.long
def test_both_clocks_in_one_campaign(tmp_path: Path) -> None:
    campaign = begun(tmp_path)
    assert execute(campaign) is engine.Ending.DONE
    state = campaign.state()
    # 2 virtual points (no direct, no page) and 6 real ones, twice each; a busy machine may be late, nothing else.
    assert len(state.done) == 16
    assert set(state.verdicts()) <= {"ok", "emulator late"}
    for path in Path(campaign.store_url).glob(f"*real*/*/{PROVENANCE}"):
        provenance = json.loads(path.read_text())
        seen = provenance["evidence"]["address_seen_by_server"]
        assert seen == ("10.77.2.1" if "bentpipe" in path.parts[-3] else "10.77.0.2")
        assert provenance["lateness"]
        if "download" in path.parts[-3] and json.loads((path.parent / RESULT).read_text())["verdict"] == "ok":
            last = (path.parent / SAMPLES).read_text().splitlines()[-1]
            assert json.loads(last)["received_bytes"] == 2_000_000
    assert list(Path(campaign.store_url).glob("paths/*/certificate.json"))
    page = report.write(campaign).read_text()
    assert "page HTTP/2" in page
    assert tables.read(campaign.directory).height >= 16


@pytest.mark.long
def test_killed_in_real_time_it_loses_the_run_in_flight_and_leaves_nothing_behind(tmp_path: Path) -> None:
    campaign = begun(
        tmp_path, PLAN.replace('["virtual", "real"]', '"real"').replace("repetitions = 2", "repetitions = 6")
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "bentpipe_lab", "resume", str(campaign.directory)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(noted(campaign)) < 3:
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    before = noted(campaign)
    results = {path: path.read_bytes() for path in Path(campaign.store_url).rglob(RESULT)}
    assert execute(campaign) is engine.Ending.DONE
    assert len(noted(campaign)) == 36
    assert set(noted(campaign).values()) == {1}
    assert before.items() <= noted(campaign).items()
    assert all(path.read_bytes() == content for path, content in results.items())
    deadline = time.monotonic() + PATIENCE_S
    while [name for name in netns.existing() if _is_of_nobody(name)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_cold_session_has_carried_no_warm_up(tmp_path: Path) -> None:
    text = (
        PLAN.replace('["virtual", "real"]', '"real"')
        .replace("repetitions = 2", "repetitions = 1\nparallel = 1")
        .replace('["direct", "bentpipe"]', '"bentpipe"')
        .replace('["first byte", "download 2 MB", "page HTTP/2"]', '"first byte"')
    )
    campaign = begun(tmp_path, text + 'session = "cold"\nneighbours = 2\n')
    assert execute(campaign) is engine.Ending.DONE
    assert set(campaign.state().verdicts()) <= {"ok", "emulator late"}
    (path,) = Path(campaign.store_url).glob(f"*/*/{PROVENANCE}")
    provenance = json.loads(path.read_text())
    assert provenance["neighbours"] == 2
    assert "warm_up" not in provenance["evidence"]


def test_a_run_that_takes_longer_than_its_limit_is_ended(tmp_path: Path) -> None:
    text = (
        PLAN.replace("timeout = 1000", "timeout = 1.5")
        .replace('["virtual", "real"]', '"real"')
        .replace('["direct", "bentpipe"]', '"direct"')
    )
    campaign = begun(tmp_path, text.replace('controller = "cubic"\n', "").replace('"first byte", ', ""))
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts()[Verdict.TIMED_OUT] > 0
    details = {json.loads(path.read_text())["detail"] for path in Path(campaign.store_url).rglob(RESULT)}
    assert any(re.match(r"not done after \d+\.\d s, the plan's limit", detail) for detail in details)


class Bypassed(Direct):
    """A system that is not where it should be."""

    name = "bypassed"
    baseline = False

    def address_at_server(self) -> str:
        return GROUND.near4


class Uninstalled(Direct):
    """A system whose program nobody has."""

    name = "uninstalled"
    baseline = False
    programs: ClassVar[Sequence[Program]] = (Debian("no-such-program"),)


@pytest.mark.parametrize(
    ("system", "verdict", "detail"),
    [
        (Bypassed, "not in path", "the server sees 10.77.0.2, and 10.77.2.1 where it is"),
        (
            Uninstalled,
            "program missing",
            "needs no-such-program, which is not installed: apt-get install --no-install-recommends no-such-program",
        ),
    ],
)
def test_a_system_that_does_not_do_its_work_is_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], system: type[Direct], verdict: str, detail: str
) -> None:
    with SYSTEMS.added(system):
        text = PLAN.replace('["virtual", "real"]', '"real"').replace('["direct", "bentpipe"]', f'"{system.name}"')
        campaign = begun(tmp_path, text.replace('controller = "cubic"\n', ""))
        plan, points = campaign.plan, campaign.expansion().points
        (unit,) = schedule.units(plan, points, schedule.open_runs(plan, points, directory.State()))
        emulate.measure_all(unit, tmp_path)
    results = [json.loads(line)["result"] for line in capsys.readouterr().out.splitlines()]
    assert len(results) == 6
    assert {result["verdict"] for result in results} == {verdict}
    assert all(detail in result["detail"] for result in results)


class Flooding(Direct):
    """A system that writes to its log without end."""

    name = "flooding"
    baseline = False

    def start(self, path: Topology, settings: Settings) -> None:
        del settings
        path.start("flood", path.terminal, ["yes"])


def test_a_program_that_floods_its_log_is_ended_and_the_disk_is_not_filled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulate, "MOST_WRITTEN", 1 << 20)
    with SYSTEMS.added(Flooding):
        text = PLAN.replace('["virtual", "real"]', '"real"').replace('["direct", "bentpipe"]', '"flooding"')
        campaign = begun(tmp_path, text.replace('controller = "cubic"\n', ""))
        plan, points = campaign.plan, campaign.expansion().points
        (unit,) = schedule.units(plan, points, schedule.open_runs(plan, points, directory.State()))
        emulate.measure_all(unit, tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert (tmp_path / "path" / "flood.out").stat().st_size <= 1 << 20


class Stuck(Direct):
    """A system whose start comes to no end."""

    name = "stuck"
    baseline = False

    def start(self, path: Topology, settings: Settings) -> None:
        del settings
        path.start("sleep", path.terminal, ["sleep", "600"]).wait_line("ready", 600)


def test_a_path_that_is_not_done_in_time_is_a_verdict_and_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SYSTEMS.added(Stuck):
        text = PLAN.replace('["virtual", "real"]', '"real"').replace('["direct", "bentpipe"]', '"stuck"')
        campaign = begun(tmp_path, text.replace('controller = "cubic"\n', ""))
        plan, points = campaign.plan, campaign.expansion().points
        (unit,) = schedule.units(plan, points, schedule.open_runs(plan, points, directory.State()))
        emulate.measure_all(replace(unit, patience_s=5.0), tmp_path)
    results = [json.loads(line)["result"] for line in capsys.readouterr().out.splitlines()]
    assert len(results) == 6
    assert {(result["verdict"], result["detail"]) for result in results} == {
        ("failed", "starting stuck was not done after 5 s; there is no path to measure over")
    }
    assert not [name for name in netns.existing() if name.startswith(f"bp{os.getpid()}-")]


def _is_of_nobody(name: str) -> bool:
    """Whether a namespace is of a run whose process has ended."""
    found = re.match(r"bp(\d+)-", name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()
