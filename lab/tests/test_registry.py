"""The registries: one class is all that a workload or a system needs to be planned, tabulated, drawn and reported."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from bentpipe_lab.analysis import budgets
from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.errors import RegistrationError, UnknownNameError
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome, Sample
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import figures, page, tables
from bentpipe_lab.studies import demo
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Workload


class ToyPage(Workload):
    name = "page HTTP/3"
    measures = "time to the last object"
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 2}
    headline = True
    timeline = True
    curve_bytes = 1_000_000

    def run(self, path: Topology) -> Outcome:
        raise NotImplementedError

    def bound_s(self, link: Link) -> float:
        return link.path_rtt_s


class ToySystem(System):
    name = "toy tunnel"
    label = "a toy"
    colour = "#123456"
    pale = "#abcdef"

    def start(self, path: Topology, settings: Settings) -> None:
        raise NotImplementedError

    def address_at_server(self) -> str:
        raise NotImplementedError


def test_a_toy_workload_and_a_toy_system_appear_everywhere(tmp_path: Path, geo: Link) -> None:
    with WORKLOADS.added(ToyPage), SYSTEMS.added(ToySystem):
        tasks = [task for task in demo.plan(tmp_path, demo.counts_of_runs()) if task.scenario.stem == "geo"]
        assert [task.system for task in tasks] == ["direct", "bentpipe", "toy tunnel"]
        assert all(task.counts["page HTTP/3"] == 2 for task in tasks)
        for task in tasks:
            measure(task, geo)
        rows = demo.summarise(tasks, {"geo": geo})
        text = io.StringIO()
        Console(file=text, width=200).print(tables.results(geo, rows))
        assert "page HTTP/3" in text.getvalue()
        assert "toy tunnel" in text.getvalue()
        drawing = figures.against_bound(rows)
        assert ToySystem.colour in drawing
        target = tmp_path / "report.html"
        page.write(target, page.Material(tasks, {"geo": geo}, rows, budgets.judge(rows), []))
        written = target.read_text()
        assert written.count("page HTTP/3") >= 2, "a headline and a line of the table"
        assert "toy tunnel / direct" in written
    assert "page HTTP/3" not in WORKLOADS
    assert "toy tunnel" not in SYSTEMS


def measure(task: Task, link: Link) -> None:
    task.directory.mkdir(parents=True)
    samples = [
        Sample(
            "geo", task.system, workload, index,
            Outcome(
                Verdict.OK, 2 * WORKLOADS[workload].bound_s(link),
                curve=[(1.0, 10)] if workload == "page HTTP/3" else [],
                objects=[{"path": "a", "size": 1, "requested_s": 0.0, "first_byte_s": 0.5, "complete_s": 1.0}],
            ),
        )
        for workload, index in task.rounds()
    ]  # fmt: skip
    (task.directory / "records.jsonl").write_text("".join(f"{each.to_json()}\n" for each in samples))


def test_a_workload_without_a_bound_is_refused_when_it_is_registered() -> None:
    class Boundless(Workload):
        name = "boundless"
        measures = "nothing"

        def run(self, path: Topology) -> Outcome:
            raise NotImplementedError

    with pytest.raises(RegistrationError, match=r"the workload 'boundless' \(.*Boundless\) has no bound_s"):
        WORKLOADS.add(Boundless)
    assert "boundless" not in WORKLOADS


def test_a_workload_that_does_not_say_what_it_measures_is_refused() -> None:
    class Silent(ToyPage):
        name = "silent"
        measures = ""

    with pytest.raises(RegistrationError, match=r"'silent' .* has no measures"):
        WORKLOADS.add(Silent)


def test_two_of_a_name_are_refused() -> None:
    class Second(ToySystem):
        name = "direct"

    with pytest.raises(RegistrationError, match="two systems 'direct'"):
        SYSTEMS.add(Second)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no system 'bentpip'; did you mean 'bentpipe'"):
        SYSTEMS["bentpip"]


def test_exactly_one_system_is_the_baseline() -> None:
    assert [system.name for system in SYSTEMS if system.baseline] == ["direct"]


def test_a_budget_of_an_unknown_workload_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no workload 'first bite'; did you mean 'first byte'"):
        budgets.Budget("geo", "first bite", "bound", 1.0, "a test")
