from pathlib import Path

from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.studies import demo
from bentpipe_lab.workloads import WORKLOADS


def test_workloads_take_turns() -> None:
    task = Task(Path("geo.toml"), "direct", {"first byte": 3, "page HTTP/2": 1}, Path("out"))
    assert task.rounds() == [("first byte", 0), ("page HTTP/2", 0), ("first byte", 1), ("first byte", 2)]


def test_the_demos_plan() -> None:
    tasks = demo.plan(Path("out"), demo.counts_of_runs())
    assert [task.name for task in tasks] == ["geo-direct", "geo-bentpipe", "leo-bentpipe", "leo-direct"]
    for task in tasks:
        assert task.scenario.is_file()
        assert set(task.counts) == {each.name for each in WORKLOADS if each.demo_runs.get(task.scenario.stem)}
        assert task.counts["first byte"] >= 8
        assert all(count >= 3 for workload, count in task.counts.items() if workload.startswith(("page", "download")))
