"""Other machines in a plan, and the offsets of their clocks."""

from pathlib import Path

import pytest

from bentpipe_lab.campaign import plan, points, schedule
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import PlanError
from bentpipe_lab.hosts.clock import Exchange, offset
from bentpipe_lab.hosts.table import Hosts
from bentpipe_lab.matrix import commands

PLAN = """\
name = "apart"
clock = "real"
parallel = {parallel}
[axes]
system = "{system}"
workload = "{workload}"
scenario = "qir-sat"
[hosts]
link = "emulated"
[hosts.client]
ssh = "root@dish.example:2222"
checkout = "/opt/bentpipe"
known_hosts = "known"
[hosts.server]
ssh = "root@server.example"
checkout = "/opt/bentpipe"
"""


def parsed(**fields: object) -> plan.Plan:
    values = {"parallel": 1, "system": "direct", "workload": "quic download", **fields}
    return plan.parse(PLAN.format(**values), Path("/plans"))


def test_other_machines_go_with_each_unit_as_plain_data() -> None:
    read = parsed()
    (point,) = points.expand(read).points
    (unit,) = schedule.units(read, [point], [Run(point.id, 1, 1)])
    assert unit.hosts is not None
    hosts = Hosts.of(unit.hosts)
    assert (hosts.client.user, hosts.client.name, hosts.client.port) == ("root", "dish.example", 2222)
    assert hosts.client.known_hosts == "/plans/known"
    assert hosts.server.port == 22
    assert hosts.server.known_hosts.endswith("/.ssh/known_hosts")


def test_a_cell_again_is_on_the_same_machines() -> None:
    read = parsed()
    (point,) = points.expand(read).points
    again = plan.parse(commands.only(read, point.id), Path("/elsewhere"))
    assert again.hosts == read.hosts


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parallel": 2}, "parallel = 2; with client and server on other hosts it is 1"),
        ({"system": "bentpipe"}, "system = 'bentpipe'; .* 'direct'"),
        ({"workload": "download"}, "workload = 'download'; .* 'quic download'"),
    ],
)
def test_what_cannot_be_done_on_other_machines_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        points.expand(parsed(**fields))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('link = "emulated"', 'link = "radio"'), "hosts.link = 'radio': give \"emulated\""),
        (('link = "emulated"', 'link = "real"'), "hosts.client.device is missing"),
        (('ssh = "root@server.example"', 'ssh = "server.example"'), "hosts.server.ssh = 'server.example': give USER@"),
        (('ssh = "root@server.example"', 'ssh = "root@server.example:x"'), "give USER@NAME or USER@NAME:PORT"),
        (('known_hosts = "known"', 'known_host = "known"'), "hosts.client: .*known_host.*known_hosts"),
        (('known_hosts = "known"', "known_hosts = 1"), "hosts.client.known_hosts = 1: give a text"),
        (('checkout = "/opt/bentpipe"\nknown', "known"), "hosts.client.checkout is missing"),
        (("[hosts.server]", "[hosts.relay]"), "hosts: .*relay"),
    ],
)
def test_a_table_of_hosts_that_is_wrong_says_where(change: tuple[str, str], said: str) -> None:
    text = PLAN.format(parallel=1, system="direct", workload="quic download")
    assert change[0] in text
    with pytest.raises(PlanError, match=said):
        plan.parse(text.replace(*change), Path("/plans"))


def test_the_exchange_with_the_shortest_round_trip_says_how_far_a_clock_is_off() -> None:
    true_s = 3.5
    slow_back = Exchange(0, round((true_s + 0.1) * 1e9), 900_000_000)
    short = Exchange(10**9, round((1 + 0.02 + true_s) * 1e9), 10**9 + 50_000_000)
    found = offset([slow_back, short])
    assert found.uncertain_s == 0.025
    assert abs(found.offset_s - true_s) <= found.uncertain_s
    assert abs(offset([slow_back]).offset_s - true_s) > found.uncertain_s
