"""Campaigns in virtual time: interrupted, distributed and short of room, they give the same bytes."""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bentpipe_lab.campaign import commands, directory, engine, journal, points, provenance, schedule, simulate, store
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.errors import CampaignError, DiskFullError, LabError, PlanError, UnknownNameError
from bentpipe_lab.net import host
from bentpipe_lab.records import tables
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import campaign as report
from bentpipe_lab.room import room
from processes import PATIENCE_S, child_of, program, until
from rights import needs_root

SMALL = """\
name = "small"
repetitions = 2
sample_every = "100 ms"
[axes]
scenario = ["geo", "leo"]
system = "quic"
workload = ["first byte", "download 2 MB"]
controller = ["cubic", "satellite"]
"""
LONGER = """\
name = "longer"
repetitions = 3
[axes]
scenario = "leo"
system = "bentpipe"
workload = ["first byte", "download 2 MB"]
controller = ["cubic", "satellite", "bbr3"]
"scenario.forward.loss" = ["0 %", "0.1 %"]
"""


def begun(tmp_path: Path, text: str, name: str = "campaign") -> directory.Campaign:
    file = tmp_path / f"{name}.toml"
    file.write_text(text)
    plan, expansion = commands.prepared(file)
    return directory.begin(plan, expansion, tmp_path / name, None)


def execute(campaign: directory.Campaign, scheduler: str | None = None) -> engine.Ending:
    return engine.execute(campaign, Progress(Console(file=io.StringIO())), scheduler)


def kept(campaign: directory.Campaign) -> dict[str, bytes]:
    """Every file of every run but where, when and by whom it was done."""
    runs = Path(campaign.store_url)
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for path in runs.rglob("*.json*")
        if path.suffix in (".json", ".jsonl") and path.name != store.PROVENANCE
    }


def noted(campaign: directory.Campaign) -> Counter[tuple[str, int, int]]:
    events = journal.read(campaign.directory / directory.JOURNAL)
    return Counter(
        (event["point"], event["repetition"], event["attempt"]) for event in events if event["event"] == "run"
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    campaign = begun(tmp_path_factory.mktemp("uninterrupted"), LONGER)
    assert execute(campaign) is engine.Ending.DONE
    return kept(campaign)


def test_a_campaign_is_done_and_is_never_begun_over(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    assert execute(campaign) is engine.Ending.DONE
    assert len(noted(campaign)) == 16
    assert set(noted(campaign).values()) == {1}
    assert {done.verdict for done in campaign.state().done.values()} == {"ok"}
    results = [json.loads(text) for name, text in kept(campaign).items() if name.endswith(store.RESULT)]
    assert all(result["seconds"] >= result["bound_s"] for result in results)
    with pytest.raises(CampaignError, match="holds a campaign that was begun: `bentpipe-lab resume"):
        commands.run(tmp_path / "campaign.toml", campaign.directory, None, None, Console(file=io.StringIO()))


def test_everything_that_is_needed_to_repeat_it_is_kept(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    execute(campaign)
    provenance = json.loads((campaign.directory / directory.PROVENANCE).read_text())
    assert {"revision", "binary_sha256", "machine", "versions", "sysctls", "command", "plan_sha256"} <= set(provenance)
    run = json.loads(next(Path(campaign.store_url).rglob(store.PROVENANCE)).read_text())
    assert {"began", "took_s", "host", "load", "command", "seed", "plan", "binary_sha256"} <= set(run)


def test_a_controller_that_nobody_has_is_told_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(SMALL.replace('"satellite"', '"satelite"'))
    with pytest.raises(PlanError, match='controller "satelite" is unknown; there are satellite'):
        commands.run(file, tmp_path / "out", None, None, Console(file=io.StringIO()))
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_killed_it_loses_what_was_in_flight_and_goes_on_to_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    campaign = begun(tmp_path, LONGER)
    with program("bentpipe_lab", "resume", str(campaign.directory)) as child:
        until(lambda: noted(campaign) or child.poll() is not None)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    before = kept(campaign)
    assert 0 < sum(noted(campaign).values()) < 36
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted
    assert before.items() <= kept(campaign).items()
    assert set(noted(campaign).values()) == {1}


@pytest.mark.long
def test_interrupted_it_ends_in_order_and_can_be_resumed(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    campaign = begun(tmp_path, LONGER)
    with program("bentpipe_lab", "resume", str(campaign.directory)) as child:
        until(lambda: noted(campaign) or child.poll() is not None)
        # Stopped, it cannot come to its end before the others have tried.
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(CampaignError, match="being worked on by another process"):
            execute(campaign)
        child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 130
    assert not campaign.running()
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted


@pytest.mark.long
def test_paused_it_stops_and_can_be_resumed(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    campaign = begun(tmp_path, LONGER)
    endings: list[int] = []
    with program("bentpipe_lab", "resume", str(campaign.directory)) as child:
        until(lambda: noted(campaign) or child.poll() is not None)
        commands.pause(campaign.directory, Console(file=io.StringIO()))
        endings.append(child.wait(PATIENCE_S))
    assert endings == [0]
    assert campaign.state().paused
    assert sum(noted(campaign).values()) < 36
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted


@contextlib.contextmanager
def scheduler_of(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    file = tmp_path / "scheduler.json"
    address = ("--host", "127.0.0.1", "--port", "0")
    with program("distributed.cli.dask_scheduler", *address, "--no-dashboard", "--scheduler-file", str(file)) as child:
        until(lambda: file.exists() and file.read_text().endswith("}"))
        yield child, json.loads(file.read_text())["address"]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    with scheduler_of(tmp_path) as (_, address):
        yield address


def worker(scheduler: str) -> contextlib.AbstractContextManager["subprocess.Popen[bytes]"]:
    return program("distributed.cli.dask_worker", scheduler, "--nthreads", "1", "--no-nanny", "--no-dashboard")


@pytest.mark.long
def test_a_scheduler_and_two_workers_give_the_same_bytes_and_a_killed_one_costs_what_it_had_in_flight(
    tmp_path: Path, scheduler: str, uninterrupted: dict[str, bytes]
) -> None:
    campaign = begun(tmp_path, LONGER)
    with worker(scheduler) as first, worker(scheduler), program_of(campaign, scheduler) as coordinator:
        until(lambda: noted(campaign) or coordinator.poll() is not None)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert coordinator.wait(PATIENCE_S) == 0
    assert kept(campaign) == uninterrupted
    assert set(noted(campaign).values()) == {1}
    hosts = {json.loads(path.read_text())["host"] for path in Path(campaign.store_url).rglob(store.PROVENANCE)}
    assert hosts


def program_of(
    campaign: directory.Campaign, scheduler: str
) -> contextlib.AbstractContextManager["subprocess.Popen[bytes]"]:
    return program("bentpipe_lab", "resume", str(campaign.directory), "--scheduler", scheduler)


@pytest.mark.long
def test_no_scheduler_is_told(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    with pytest.raises(LabError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        execute(campaign, "tcp://127.0.0.1:1")


def test_a_scheduler_without_workers_is_told(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORKERS_S", 1)
    with pytest.raises(LabError, match=f"{scheduler} has no workers"):
        execute(begun(tmp_path, SMALL), scheduler)


def test_a_worker_without_the_lab_is_told_before_anything_begins(tmp_path: Path, scheduler: str) -> None:
    without = (
        "import sys; sys.modules['bentpipe_lab'] = None; sys.argv[0] = 'worker';"
        "from distributed.cli.dask_worker import main; main()"
    )
    campaign = begun(tmp_path, SMALL)
    argv = [sys.executable, "-c", without, scheduler, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with (
        child_of(argv),
        pytest.raises(LabError, match=r"the worker tcp://127.0.0.1:\d+ cannot do runs: .*bentpipe_lab"),
    ):
        execute(campaign, scheduler)
    assert not noted(campaign)


@pytest.mark.long
def test_a_scheduler_that_dies_is_told_and_what_was_done_is_kept(
    tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    campaign = begun(tmp_path, LONGER)
    with scheduler_of(tmp_path) as (dask, address), worker(address):
        argv = [sys.executable, "-m", "bentpipe_lab", "resume", str(campaign.directory), "--scheduler", address]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as coordinator:
            until(lambda: noted(campaign) or coordinator.poll() is not None)
            dask.kill()
            said, _ = coordinator.communicate(timeout=PATIENCE_S)
    assert coordinator.returncode == 1
    assert "Traceback" not in said
    assert f"the Dask scheduler at {address} is gone" in " ".join(said.split())
    assert set(campaign.state().verdicts()) == {Verdict.OK}
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted


@pytest.mark.long
def test_a_full_disk_loses_nothing_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, bytes]
) -> None:
    campaign = begun(tmp_path, LONGER)
    left = [10]
    whole = store.Store.put

    def put(self: store.Store, run: Any, files: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(self, run, files)

    def refusing(self: store.Store, run: Any, files: Any) -> None:
        with room("here", store.RESUME):
            put(self, run, files)

    monkeypatch.setattr(store.Store, "put", refusing)
    with pytest.raises(DiskFullError, match="no room at here: what was measured before is kept"):
        execute(campaign)
    monkeypatch.setattr(store.Store, "put", whole)
    assert sum(name.endswith(store.RESULT) for name in kept(campaign)) == 10
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted


@needs_root
def test_a_full_disk_under_the_simulator_is_told_and_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    text = SMALL.replace("repetitions = 2", "repetitions = 40").replace("100 ms", "20 ms")
    campaign = begun(tmp_path, text)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tiny)], check=True)
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tiny))
        # Not even what the simulator says of it may find room there.
        with pytest.raises(DiskFullError, match="no room in"):
            execute(campaign)
    finally:
        subprocess.run(["umount", str(tiny)], check=True)
    assert Verdict.FAILED not in campaign.state().verdicts()


def test_runs_are_tried_again_by_verdict(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL.replace("repetitions = 2", "repetitions = 1\ntimeout = 1.5"))
    execute(campaign)
    verdicts = campaign.state().verdicts()
    assert verdicts[Verdict.STALLED] > 0
    out = Console(file=io.StringIO())
    assert commands.retry(campaign.directory, ("stalled",), None, out) == 0
    assert campaign.state().verdicts() == verdicts
    assert sum(attempt == 2 for _, _, attempt in noted(campaign)) == verdicts[Verdict.STALLED]
    with pytest.raises(UnknownNameError, match="no verdict 'staled'; did you mean 'stalled'"):
        commands.retry(campaign.directory, ("staled",), None, out)
    with pytest.raises(CampaignError, match=r"no run .* ended with refused"):
        commands.retry(campaign.directory, ("refused",), None, out)


def test_a_point_that_breaks_the_simulator_costs_no_other_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = begun(tmp_path, SMALL)
    whole = simulate.execute

    def breaking(unit: Any, *further: Any) -> Any:
        if any("cubic" in name and name.startswith("geo") for name in unit.points):
            raise ChildProcessError("it died")
        return whole(unit, *further)

    monkeypatch.setattr(simulate, "execute", breaking)
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts() == {"ok": 12, "failed": 4}
    result = next(json.loads(text) for name, text in kept(campaign).items() if b'"failed"' in text)
    assert result["detail"] == "ChildProcessError: it died"


def test_a_run_that_breaks_the_simulator_costs_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "bentpipe"
    # As the simulator does where one run panics: the others are there, and the end is an error.
    stand_in.write_text(f"""\
#!{sys.executable}
import subprocess, sys
code = subprocess.run(["{host.binary()}", *sys.argv[1:]]).returncode
if sys.argv[1] == "sim" and "until = \\"1 ms" not in open(sys.argv[2]).read():
    path = sys.argv[-1] + "/records.jsonl"
    lines = open(path).read().splitlines(keepends=True)
    kept, broken = [], False
    for line in lines:
        if line.startswith('{{"run"'):
            broken = '"seed":2' in line
            line = line.replace('"seed":2', '"failed":"it panicked","seed":2')
            kept.append(line)
        elif not broken:
            kept.append(line)
    open(path, "w").write("".join(kept))
    print("bentpipe: 1 of 3 runs failed, the first one: it panicked", file=sys.stderr)
    code = 1
sys.exit(code)
""")
    stand_in.chmod(0o755)
    monkeypatch.setenv("BENTPIPE", str(stand_in))
    text = SMALL.replace("repetitions = 2", "repetitions = 3").replace('["geo", "leo"]', '"leo"')
    campaign = begun(tmp_path, text.replace('["first byte", "download 2 MB"]', '"first byte"'))
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts() == {Verdict.OK: 4, Verdict.FAILED: 2}
    failed = [done.run for done in campaign.state().done.values() if done.verdict is Verdict.FAILED]
    assert {run.repetition for run in failed} == {2}
    assert campaign.store.result(failed[0])["detail"] == "the simulator: it panicked"


@pytest.mark.long
@pytest.mark.parametrize(("endless", "not_tried"), [({2}, 0), ({1, 2, 3, 4}, 1)])
def test_a_run_that_never_ends_costs_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: set[int], not_tried: int
) -> None:
    """One point of two has no end with these seeds; the simulator is one of two threads at work then."""
    stand_in = tmp_path / "bentpipe"
    stand_in.write_text(f"""\
#!{sys.executable}
import os, subprocess, sys, time, tomllib
argv = ["{host.binary()}", *sys.argv[1:]]
plan = tomllib.load(open(sys.argv[2], "rb")) if sys.argv[1] == "sim" else {{}}
cubic = [case for case in plan.get("case", []) if "cubic" in case["name"] and case["until"] != "1 ms"]
seeds = range(plan.get("first_seed", 1), plan.get("first_seed", 1) + plan.get("seeds", 1))
if not cubic or not {endless} & set(seeds):
    os.execv(argv[0], argv)
subprocess.run(argv, check=True)
path = sys.argv[-1] + "/records.jsonl"
kept = []
endless = tuple(f'"seed":{{seed}}' for seed in {endless})
for line in open(path).read().splitlines(keepends=True):
    if line.startswith('{{"run"') and "cubic" in line and any(seed in line for seed in endless):
        break
    kept.append(line)
open(path, "w").write("".join(kept))
time.sleep(600)
""")
    stand_in.chmod(0o755)
    monkeypatch.setenv("BENTPIPE", str(stand_in))
    monkeypatch.setattr(schedule, "LEAST_PATIENCE_S", 5.0)
    monkeypatch.setattr(schedule, "PATIENCE", 1.0)
    text = SMALL.replace("repetitions = 2", "repetitions = 4").replace('["geo", "leo"]', '"leo"')
    campaign = begun(tmp_path, text.replace('["first byte", "download 2 MB"]', '"first byte"'))
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts() == {Verdict.OK: 8 - len(endless), Verdict.FAILED: len(endless)}
    failed = [done.run for done in campaign.state().done.values() if done.verdict is Verdict.FAILED]
    assert {run.repetition for run in failed} == endless
    assert all("cubic" in run.point for run in failed)
    details = [campaign.store.result(run)["detail"] for run in failed]
    waited = "the simulator: `bentpipe sim` did not end: nothing came of it for 5 s, and it was ended"
    assert sum(waited in detail for detail in details) == len(endless) - not_tried
    skipped = "not simulated: the simulator did not end seeds 1, 2, 3 of this point, and more were not tried"
    assert sum(skipped in detail for detail in details) == not_tried


@pytest.mark.parametrize("workload", ['"download 2 MB"', '"iperf3"\n"workload.seconds" = 5'])
def test_repetitions_go_on_until_the_interval_is_narrow(tmp_path: Path, workload: str) -> None:
    """The interval of what counts: of transfers the time, of what lasts for a fixed time the goodput."""
    text = SMALL.replace(
        "repetitions = 2", 'timeout = 1000\nrepetitions = { least = 5, most = 7, until = "0.0001 %" }'
    ).replace(
        'workload = ["first byte", "download 2 MB"]',
        f'workload = {workload}\n"scenario.forward.loss" = "1 %"',
    )
    campaign = begun(tmp_path, text)
    execute(campaign)
    assert {
        name: count for name, count in Counter(point for point, _, _ in noted(campaign)).items() if count != 7
    } == {}
    wide = begun(tmp_path, text.replace("0.0001 %", "10000 %"), "wide")
    execute(wide)
    assert set(Counter(point for point, _, _ in noted(wide)).values()) == {5}


def test_a_campaign_does_not_go_on_over_another_link_than_it_was_begun_with(tmp_path: Path) -> None:
    scenario = (host.REPOSITORY / "scenarios" / "geo.toml").read_text()
    (tmp_path / "own.toml").write_text(scenario)
    campaign = begun(tmp_path, SMALL.replace('["geo", "leo"]', '"own.toml"'))
    (tmp_path / "own.toml").write_text(scenario.replace('"20 Mbit/s"', '"2 Mbit/s"'))
    points._scenario.cache_clear()  # as in a new process
    with pytest.raises(CampaignError, match=r"the scenario own\.toml is another than when it was begun"):
        execute(campaign)
    assert not list(campaign.store.complete())


@pytest.mark.long
def test_what_it_was_gone_on_with_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = begun(tmp_path, SMALL)
    execute(campaign)
    assert "Gone on with" not in report.write(campaign).read_text()
    shutil.rmtree(next(Path(campaign.store_url).glob("*/00001")))
    monkeypatch.setattr(provenance, "revision", lambda: "another")
    execute(campaign)
    assert "revision another, binary SHA-256" in report.write(campaign).read_text()


def test_a_pause_window_holds_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = begun(tmp_path, SMALL)
    looked = threading.Event()
    looks: list[bool] = []

    def waiting(_self: engine.Engine) -> bool:
        looks.append(not looked.is_set())
        if len(looks) > 3:
            looked.set()
        return looks[-1]

    monkeypatch.setattr(engine.Engine, "_in_pause_window", waiting)
    assert execute(campaign) is engine.Ending.DONE
    assert looks[:4] == [True] * 4


@pytest.mark.long
def test_a_link_that_loses_everything_ends_in_time(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL + '"scenario.forward.loss" = "100 %"\n')
    assert all(point["limit_s"] <= 3600 for point in campaign.points())
    execute(campaign)
    assert campaign.state().verdicts() == {Verdict.TIMED_OUT: 16}


def test_the_store_may_be_any_that_fsspec_reaches(tmp_path: Path) -> None:
    here = begun(tmp_path, SMALL)
    execute(here)
    file = tmp_path / "campaign.toml"
    plan, expansion = commands.prepared(file)
    elsewhere = directory.begin(plan, expansion, tmp_path / "elsewhere", f"memory://{tmp_path}/runs")
    assert execute(elsewhere) is engine.Ending.DONE
    assert not (elsewhere.directory / directory.RUNS).exists()
    runs = sorted(here.store.complete(), key=lambda run: run.directory)
    assert sorted(elsewhere.store.complete(), key=lambda run: run.directory) == runs
    for run in runs:
        for name in (store.RESULT, store.RECORDS, store.SAMPLES):
            assert elsewhere.store.text(run, name) == here.store.text(run, name)


def test_of_two_who_begin_a_campaign_at_once_one_does(tmp_path: Path) -> None:
    file = tmp_path / "campaign.toml"
    file.write_text(SMALL)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bentpipe_lab", "run", str(file), "--out", str(out)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [child.communicate(timeout=PATIENCE_S)[0] for child in both]
    assert sorted(child.returncode for child in both) == [0, 1], said
    refused = " ".join(said[[child.returncode for child in both].index(1)].split())
    assert "cannot go on: " in refused
    assert "holds a campaign that was begun" in refused or "is being worked on by another process" in refused
    assert set(noted(directory.opened(out)).values()) == {1}


def test_what_begins_after_somebody_else_has_writes_nothing_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either has written."""
    first = begun(tmp_path, SMALL)
    before = {path: path.read_bytes() for path in first.directory.iterdir()}
    whole, looks = directory.refuse_begun, iter([True])
    monkeypatch.setattr(directory, "refuse_begun", lambda place: None if next(looks, False) else whole(place))
    with pytest.raises(CampaignError, match="holds a campaign that was begun"):
        directory.begin(first.plan, first.expansion(), first.directory, None)
    assert {path: path.read_bytes() for path in first.directory.iterdir()} == before


DAMAGED = (
    b"\x00\xff\xfe garbage\n",
    b'{"event":"run"}\n',
    b'{"event":"run","point":"nowhere","repetition":1,"attempt":1,"verdict":"splendid","seconds":1}\n',
    b'{"event":"retry"}\n',
    b'["event"]\n',
    b'{"event":"nothing that anybody knows"}\n',
    b'{"event":"run","point":"cut o',
)


def test_a_damaged_journal_is_made_whole_from_the_runs(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    execute(campaign)
    before = kept(campaign)
    file = campaign.directory / directory.JOURNAL
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:5] + list(DAMAGED)))
    assert len(campaign.state().done) < 16
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts() == {Verdict.OK: 16}
    assert kept(campaign) == before
    file.unlink()
    assert execute(campaign) is engine.Ending.DONE
    assert campaign.state().verdicts() == {Verdict.OK: 16}


def test_a_run_whose_directory_was_removed_is_done_again(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    execute(campaign)
    before = kept(campaign)
    point = campaign.points()[0]["id"]
    shutil.rmtree(Path(campaign.store_url, point))
    out = io.StringIO()
    commands.status(campaign.directory, Console(file=out, width=200))
    assert "2 runs have no directory any more: `bentpipe-lab resume` does them again" in out.getvalue()
    assert execute(campaign) is engine.Ending.DONE
    after = kept(campaign)
    assert len(after) == len(before)
    again = {name: text for name, text in after.items() if name.startswith(point)}
    assert {name.split("/")[1] for name in again} == {"00001-2", "00002-2"}
    for name, text in again.items():
        if name.endswith(store.SAMPLES):
            assert text == before[name.replace("-2/", "/")]
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == after


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "", "is damaged; without its directory `bentpipe-lab resume` does the run again"),
        (lambda text: text[:40], "is damaged"),
        (lambda _: "[]", "is damaged"),
        (lambda text: text.replace("lab/run/1", "lab/run/2"), r"of another version of the lab: bentpipe/lab/run/2"),
        (lambda text: text.replace('"ok"', '"splendid"'), r"another version of the lab: .*/1, verdict 'splendid'"),
    ],
    ids=["empty", "cut off", "no table", "schema", "verdict"],
)
def test_a_result_that_cannot_be_read_is_named(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    campaign = begun(tmp_path, SMALL)
    execute(campaign)
    file = sorted(Path(campaign.store_url).rglob(store.RESULT))[0]
    file.write_text(change(file.read_text()))
    (campaign.directory / directory.JOURNAL).unlink()
    for ask in (lambda: execute(campaign), lambda: tables.write(campaign)):
        with pytest.raises(CampaignError, match=message) as said:
            ask()
        assert str(file) in str(said.value)


def test_a_journal_of_another_version_is_told(tmp_path: Path) -> None:
    campaign = begun(tmp_path, SMALL)
    (campaign.directory / directory.JOURNAL).write_text('{"event":"running","schema":"bentpipe/lab/journal/9"}\n')
    with pytest.raises(CampaignError, match=r"journal.jsonl is of another version of the lab: .*/9, not .*/1"):
        execute(campaign)


@pytest.mark.long
def test_ctrl_c_again_and_again_ends_it_in_order_all_the_same(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    campaign = begun(tmp_path, LONGER)
    command = [sys.executable, "-m", "bentpipe_lab", "resume", str(campaign.directory)]
    with (tmp_path / "said").open("w+") as said:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            until(lambda: noted(campaign) or child.poll() is not None)
            while child.poll() is None:
                child.send_signal(signal.SIGINT)
                time.sleep(0.02)
        finally:
            child.kill()
            child.wait()
        said.seek(0)
        text = said.read()
    assert child.returncode == 130, text
    assert "interrupted: " in text
    assert "Traceback" not in text
    assert not campaign.running()
    assert execute(campaign) is engine.Ending.DONE
    assert kept(campaign) == uninterrupted
