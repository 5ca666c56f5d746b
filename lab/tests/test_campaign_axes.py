"""Axes of a plan that reach into the kernel's TCP and into workloads."""

import tomllib
from pathlib import Path

import pytest

from bentpipe_lab.campaign import plan, points, schedule
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.errors import LabError
from bentpipe_lab.net.tcp import KernelTcp
from bentpipe_lab.records import parts

PLAN_REAL = """\
name = "axes"
clock = "real"
[axes]
scenario = "leo"
system = "direct"
workload = "first byte"
"""


def test_tcp_is_set_at_single_nodes(tmp_path: Path) -> None:
    text = PLAN_REAL + 'tcp_controller = "cubic"\n"server.tcp_controller" = ["bbr", "reno"]\n'
    text += '"client.tcp_initial_window" = 32\n"tcp_buffer" = "6 MiB"\n'
    expansion = points.expand(plan.parse(text, tmp_path))
    assert [point.tcp["server.tcp_controller"] for point in expansion.points] == ["bbr", "reno"]
    chosen = KernelTcp.of(expansion.points[0].tcp)
    assert (chosen.controller("server"), chosen.controller("gateway")) == ("bbr", "cubic")
    assert chosen.initial_windows == {"client": 32}
    assert chosen.buffers == {"": 6 << 20}
    assert len({point.path for point in expansion.points}) == 2


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ('"servr.tcp_controller" = "bbr"', "no axis 'servr.tcp_controller'; did you mean 'server.tcp_controller'"),
        ('tcp_buffer = "6 Mib"', "axes.tcp_buffer = '6 Mib': give a number and a unit, like \"25 kB\""),
        ('"server.tcp_initial_window" = 0', "axes.server.tcp_initial_window = 0: give a whole number from 1"),
        ('"workload.sise" = "1 MB"', "no option 'sise'; did you mean 'size'"),
        ('"workload.size" = "1 MB"', "workload.size is set, but first byte in real time has none"),
    ],
)
def test_an_axis_that_is_wrong_is_told(tmp_path: Path, axis: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        points.expand(plan.parse(f"{PLAN_REAL}{axis}\n", tmp_path))


def test_an_option_is_of_the_workloads_that_have_it(tmp_path: Path) -> None:
    text = PLAN_REAL.replace('"first byte"', '["first byte", "download"]') + '"workload.size" = ["25 kB", "2 MB"]\n'
    expansion = points.expand(plan.parse(text, tmp_path))
    assert [point.options for point in expansion.points] == [{}, {"size": "25 kB"}, {"size": "2 MB"}]
    assert "workload.size: not of first byte in real time, whose points have none" in expansion.notes
    bounds = [point.bound_s for point in expansion.points[1:]]
    assert bounds[0] < bounds[1]
    with pytest.raises(LabError, match=r"axes\.workload\.size = 'much'"):
        points.expand(plan.parse(text.replace('"2 MB"', '"much"'), tmp_path))


def test_a_workload_is_left_out_with_a_system_that_does_not_carry_it(tmp_path: Path) -> None:
    text = PLAN_REAL.replace('"direct"', '["direct", "quic-pep"]').replace('"first byte"', '["download", "web page"]')
    expansion = points.expand(plan.parse(f'{text}"workload.protocol" = ["HTTP/2", "HTTP/3"]\n', tmp_path))
    of_pep = [point.options["protocol"] for point in expansion.points if point.system == "quic-pep"]
    assert of_pep == ["HTTP/3"]
    assert "left out: download over TCP, which quic-pep does not carry" in expansion.notes
    assert len(expansion.points) == 4


def test_fields_of_a_scenario_are_reached_by_name_and_place(tmp_path: Path) -> None:
    text = PLAN_REAL.replace('"leo"', '"bujari-handover"')
    fields = {
        "scenario.switch.0.forward.queue": "10 packets",
        "scenario.forward.queue.codel.limit": "20 packets",
        "scenario.forward.change.0.at": "5 s",
        "scenario.forward.change.0.rate": "2 Mbit/s",
    }
    text += "".join(f'"{name}" = "{value}"\n' for name, value in fields.items())
    (point,) = points.expand(plan.parse(text, tmp_path)).points
    scenario = tomllib.loads(point.scenario_toml)
    assert scenario["switch"][0]["forward"]["queue"] == "10 packets"
    assert scenario["forward"]["queue"] == {"codel": {"limit": "20 packets"}}
    assert scenario["forward"]["change"] == [{"at": "5 s", "rate": "2 Mbit/s"}]


def test_a_place_that_a_list_does_not_have_is_told(tmp_path: Path) -> None:
    text = PLAN_REAL.replace('"leo"', '"bujari-handover"') + '"scenario.switch.2.forward.queue" = "10 packets"\n'
    with pytest.raises(LabError, match=r"switch\.2\.forward\.queue: '2' is no place in a list of 1"):
        points.expand(plan.parse(text, tmp_path))


@pytest.mark.parametrize("system", ["quic", "bentpipe"])
def test_the_simulator_is_given_the_switches_of_a_scenario(tmp_path: Path, system: str) -> None:
    text = f'name = "move"\n[axes]\nscenario = "bujari-handover"\nsystem = "{system}"\nworkload = "perf"\n'
    (point,) = points.expand(plan.parse(text, tmp_path)).points
    assert point.simulation is not None
    (switch,) = point.simulation["link"]["switch"]
    assert switch["new_address"]
    assert parts.switches_s(point.simulation["link"]) == [90.0]


TUNNEL = """\
name = "surroundings"
clock = ["virtual", "real"]
parallel = 1
repetitions = 2
[axes]
scenario = "leo"
system = ["direct", "bentpipe"]
workload = "download"
session = ["cold", "warm"]
neighbours = [0, 6]
"""


def test_a_cold_session_is_one_run_s_and_a_warm_one_many_runs(tmp_path: Path) -> None:
    its_plan = plan.parse(TUNNEL, tmp_path)
    expansion = points.expand(its_plan)
    by_id = {point.id: point for point in expansion.points}
    real = [point for point in expansion.points if point.clock == "real"]
    # Neighbours are beside both systems; only the tunnel has sessions.
    assert len([point for point in real if point.system == "direct"]) == 2
    assert len([point for point in real if point.system == "bentpipe"]) == 4
    runs = schedule.open_runs(its_plan, real, State())
    for unit in schedule.units(its_plan, real, runs):
        cold = {by_id[run.point].cold for run in unit.runs}
        assert len({(by_id[run.point].cold, by_id[run.point].neighbours) for run in unit.runs}) == 1
        assert (len(unit.runs), unit.late_repeats) == ((1, 0) if cold == {True} else (2, its_plan.late_repeats))


def test_in_virtual_time_a_cold_session_has_carried_nothing(tmp_path: Path) -> None:
    virtual = [point for point in points.expand(plan.parse(TUNNEL, tmp_path)).points if point.clock == "virtual"]
    # Neighbours are those of a machine, which virtual time has none of.
    flows = {point.cold: [flow["name"] for flow in (point.simulation or {})["flow"]] for point in virtual}
    assert flows == {True: ["measured"], False: ["warm-up 1", "warm-up 2", "warm-up 3", "measured"]}
    assert len(virtual) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parallel = 1", "parallel = 2", "parallel = 2, but neighbours of one path slow the others: give parallel = 1"),
        ("[0, 6]", "[0, -1]", "axes.neighbours = -1: give a whole number from 0 to 256"),
        ('"warm"', '"worm"', "axes.session: there is no session 'worm'; did you mean 'warm'"),
        ('["direct", "bentpipe"]', '"direct"', "session is set, but direct in virtual and real time has none"),
    ],
)
def test_surroundings_that_are_wrong_are_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        points.expand(plan.parse(TUNNEL.replace(old, new), tmp_path))


def test_a_field_of_a_configuration_is_of_systems_that_have_one(tmp_path: Path) -> None:
    text = PLAN_REAL.replace('"direct"', '"tcp-pep"') + '"transport.expected_rtt" = "600 ms"\n'
    with pytest.raises(LabError, match=r"transport\.expected_rtt is set, but tcp-pep in real time has none"):
        points.expand(plan.parse(text, tmp_path))
    expansion = points.expand(plan.parse(text.replace('"tcp-pep"', '["tcp-pep", "bentpipe"]'), tmp_path))
    assert [dict(point.settings.fields) for point in expansion.points] == [{}, {"expected_rtt": "600 ms"}]


def test_a_case_has_axes_and_a_clock_of_its_own(tmp_path: Path) -> None:
    text = """\
name = "cases"
clock = ["virtual", "real"]
[axes]
scenario = "leo"
[[case]]
name = "transfers"
clock = "virtual"
system = ["quic", "bentpipe"]
workload = "download"
"workload.size" = { from = "1 MB", to = "3 MB", steps = 3 }
[[case]]
name = "pages"
clock = "real"
system = "direct"
workload = ["page HTTP/1.1", "page HTTP/2"]
"""
    expansion = points.expand(plan.parse(text, tmp_path))
    assert [(point.clock, point.axes["case"]) for point in expansion.points] == [
        *[("virtual", "transfers")] * 6, *[("real", "pages")] * 2,
    ]  # fmt: skip
    assert not expansion.notes
    with pytest.raises(LabError, match="case 'pages': clock = 'real', which the plan's clock does not have"):
        plan.parse(text.replace('["virtual", "real"]', '"virtual"'), tmp_path)
