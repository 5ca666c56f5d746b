"""Plans: what they may say, and what is said of those that are wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bentpipe_lab.campaign import plan as plans
from bentpipe_lab.campaign.plan import PauseWindow
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.campaign.ranges import in_one_unit, number, values
from bentpipe_lab.errors import LabError, PlanError

AXES = 'scenario = "geo"\nsystem = "quic"\nworkload = "download 2 MB"\n'


def plan(axes: str = AXES, head: str = "", tail: str = "") -> plans.Plan:
    return plans.parse(f'name = "test"\n{head}\n[axes]\n{axes}\n{tail}', Path())


@pytest.mark.parametrize(
    ("axes", "head", "message"),
    [
        (AXES.replace("geo", "gio"), "", r"no scenario 'gio'; did you mean 'geo'"),
        (AXES.replace("quic", "quick"), "", r"no system 'quick'; did you mean 'quic'"),
        (AXES.replace("2 MB", "2MB"), "", r"no workload 'download 2MB'; did you mean 'download 2 MB'"),
        (AXES + 'controler = "cubic"', "", r"no axis 'controler'; did you mean 'controller'"),
        (AXES, 'repetition = 3', r"no field 'repetition'; did you mean 'repetitions'"),
        (AXES, 'clock = "virtuel"', r"no clock 'virtuel'; did you mean 'virtual'"),
        (AXES + '"scenario.forward.lost" = "1 %"', "", r"lost"),
        (AXES + "controller = []", "", "an empty list leaves no point"),
        (AXES + 'controller = ["cubic", "cubic"]', "", "a value is there twice"),
        (AXES + "initial_window = [10, 0]", "", "initial_window = 0: give a whole number"),
        (AXES, "repetitions = 0", "repetitions = 0: give a whole number"),
        (AXES, 'repetitions = { until = "narrow" }', "give a width of the interval as a percentage"),
        (AXES, 'pause = "25:00-26:00"', "give times of day"),
        (AXES, 'pause = ["00:00-12:00", "12:00-00:00"]', "leave no minute of the day"),
        (AXES, 'order = "random"', 'give "as written", or'),
        ("", "", "axes.scenario is missing"),
        (AXES.replace('"quic"', '"direct"'), "", r"contradict each other: the system 'direct' does not run in virtual"),
        (AXES.replace("download 2 MB", "page HTTP/2"), "", r"'page HTTP/2' does not run in virtual time"),
        (AXES.replace("download 2 MB", "upload 10 MiB"), "", "quic has no upload"),
        (AXES + '"transport.expected_rate" = "1 Mbit/s"', "", "quic has no transport.expected_rate in virtual time"),
        (AXES + 'controller = "cubic"\n"transport.controller" = "cubic"', "", "contradict each other: leave one out"),
        (AXES + 'tcp_controller = "cubic"', "", "tcp_controller is set, but quic in virtual time has none"),
        (AXES.replace('"quic"', '"direct"') + 'controller = "cubic"', 'clock = "real"', "is set, but direct"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(axes: str, head: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        expand(plan(axes, head))


def test_a_plan_of_more_than_a_million_runs_is_refused_before_it_is_expanded() -> None:
    axes = AXES + '"scenario.forward.loss" = { from = "0.001 %", to = "1 %", steps = 50000 }'
    with pytest.raises(PlanError, match=r"5000000 runs .*scenario.forward.loss has 50000.*1000000 are the most"):
        plan(axes, "repetitions = 100")


def test_a_case_and_an_axis_that_set_the_same_contradict_each_other() -> None:
    with pytest.raises(PlanError, match="case 'a' and axes contradict each other: both set scenario"):
        plan(tail='[[case]]\nname = "a"\nscenario = "leo"')


def test_cases_and_axes_are_combined_and_fields_of_scenarios_are_set() -> None:
    made = plan(
        'system = "quic"\nworkload = "first byte"\ncontroller = ["cubic", "bbr3"]',
        tail='[[case]]\nname = "a"\nscenario = "geo"\n[[case]]\nname = "b"\nscenario = "leo"\n'
        '"scenario.forward.delay" = "99 ms"',
    )
    points = expand(made).points
    assert [(point.axes["case"], point.axes["controller"]) for point in points] == [
        ("a", "cubic"), ("a", "bbr3"), ("b", "cubic"), ("b", "bbr3"),
    ]  # fmt: skip
    assert points[2].link.forward.one_way_delay_s == pytest.approx(0.099)
    assert points[2].bound_s == pytest.approx(points[2].link.satellite_rtt_s)
    assert len({point.id for point in points}) == 4


def test_a_run_of_a_fixed_length_that_stands_still_is_ended_with_it() -> None:
    head = 'clock = "real"\ntimeout = 30'
    axes = 'scenario = "kosek-geo"\nsystem = "direct"\nworkload = ["iperf3", "download 10 MiB"]\n'
    fixed, transfer = expand(plan(axes, head)).points
    assert fixed.limit_s == pytest.approx(fixed.bound_s + 30 * fixed.link.first_byte_s + 10)
    assert transfer.limit_s == pytest.approx(30 * transfer.bound_s)


def test_an_axis_that_only_some_systems_have_leaves_the_others_one_point() -> None:
    made = plan(
        'scenario = "geo"\nsystem = ["direct", "bentpipe"]\nworkload = "first byte"\ncontroller = ["cubic", "bbr3"]',
        'clock = "real"',
    )
    expansion = expand(made)
    assert [(point.system, point.settings.controller) for point in expansion.points] == [
        ("direct", None), ("bentpipe", "cubic"), ("bentpipe", "bbr3"),
    ]  # fmt: skip
    assert any("controller: not of direct" in note for note in expansion.notes)


def test_both_clocks_leave_out_what_has_no_virtual_form_and_say_so() -> None:
    made = plan(
        'scenario = "geo"\nsystem = ["direct", "bentpipe"]\nworkload = ["first byte", "page HTTP/2"]',
        'clock = ["virtual", "real"]',
    )
    expansion = expand(made)
    assert sum(point.clock == "real" for point in expansion.points) == 4
    assert [(point.system, point.workload) for point in expansion.points if point.clock == "virtual"] == [
        ("bentpipe", "first byte")
    ]
    assert any("'direct' does not run in virtual time" in note for note in expansion.notes)


def test_a_point_keeps_its_name_whatever_else_the_plan_has() -> None:
    one = expand(plan()).points[0]
    two = expand(plan(AXES.replace('"geo"', '["leo", "geo"]'))).points[1]
    assert one.id == two.id


def test_the_files_that_a_scenario_names_are_found_from_anywhere() -> None:
    point = expand(plan(AXES.replace("geo", "iridium"))).points[0]
    assert "/traces/iridium-one-way-delay.csv" in point.scenario_toml


@given(st.integers(2, 200), st.floats(1e-6, 1), st.floats(2, 1e6))
def test_a_range_has_its_ends_and_grows(steps: int, low: float, high: float) -> None:
    for scale in ("linear", "log"):
        found = values("x", {"from": f"{low} %", "to": f"{high} %", "steps": steps, "scale": scale})
        numbers = [number(value) or 0.0 for value in found]
        assert len(numbers) == steps
        assert numbers[0] == pytest.approx(low, rel=1e-5)
        assert numbers[-1] == pytest.approx(high, rel=1e-5)
        assert numbers == sorted(numbers)
        assert not [value for value in found if "e" in str(value)], "the binary takes plain numbers"


def test_a_whole_range_is_whole() -> None:
    assert values("x", {"from": 0, "to": 4, "steps": 5}) == [0, 1, 2, 3, 4]


def test_a_pause_window_may_go_over_midnight() -> None:
    night = PauseWindow(22 * 60, 6 * 60)
    assert [night.holds(hour * 60) for hour in (21, 22, 23, 0, 5, 6, 12)] == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_values_with_several_units_are_numbers_in_the_smallest() -> None:
    assert in_one_unit(["25 kB", "2 MB", "11.5 MB"]) == ({"25 kB": 25.0, "2 MB": 2000.0, "11.5 MB": 11_500.0}, "kB")
    assert in_one_unit(["0.01 %", "1 %"]) == ({"0.01 %": 0.01, "1 %": 1.0}, "%")
    assert in_one_unit([10, 32]) == ({"10": 10.0, "32": 32.0}, "")
    assert in_one_unit(["100 ms", "2 s"]) == ({"100 ms": 100.0, "2 s": 2000.0}, "ms")
    assert in_one_unit(["kepler", "1 MB"]) is None
    assert in_one_unit(["1 MB", "1 s"]) is None
