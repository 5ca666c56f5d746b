"""Axes of a plan that reach into the kernel's TCP and into workloads."""

import tomllib
from pathlib import Path

import pytest

from bentpipe_lab.campaign import plan, points
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
    text += '"client.tcp_initial_window" = 32\n'
    expansion = points.expand(plan.parse(text, tmp_path))
    assert [point.tcp["server.tcp_controller"] for point in expansion.points] == ["bbr", "reno"]
    chosen = KernelTcp.of(expansion.points[0].tcp)
    assert (chosen.controller("server"), chosen.controller("gateway")) == ("bbr", "cubic")
    assert chosen.initial_windows == {"client": 32}
    assert len({point.path for point in expansion.points}) == 2


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ('"servr.tcp_controller" = "bbr"', "no axis 'servr.tcp_controller'; did you mean 'server.tcp_controller'"),
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


def test_a_change_of_address_is_a_move_of_the_simulators_terminal(tmp_path: Path) -> None:
    text = 'name = "move"\n[axes]\nscenario = "bujari-handover"\nsystem = "quic"\nworkload = "perf"\n'
    (point,) = points.expand(plan.parse(text, tmp_path)).points
    assert point.simulation is not None
    assert point.simulation["move"]["at"] == "90 s"
    assert point.simulation["move"]["link"]["forward"]["delay"] == "60 ms"
    assert "switch" not in point.simulation["link"]
    assert parts.moves_s(point.simulation) == [90.0]
