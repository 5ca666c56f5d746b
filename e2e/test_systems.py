"""Systems under test beside each other: each carries what the client sends, or says which program it lacks."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bentpipe_lab.campaign import commands, directory, emulate, schedule
from bentpipe_lab.programs import absent
from bentpipe_lab.systems import SYSTEMS

PLAN = """\
name = "systems"
clock = "real"
timeout = 1000
late_repeats = 0
[axes]
scenario = "short.toml"
system = "{system}"
workload = {workloads}
"server.tcp_controller" = "reno"
tcp_initial_window = 20
"""
WORKLOADS = {"TCP": ["download", "page HTTP/2"], "QUIC": ["perf"]}
"""By what a system carries."""
SERVER_SEES = {"direct": "10.77.0.2", "tcp-pep chain": "10.77.2.2", "quic-pep chain": "10.77.2.2"}


@pytest.mark.parametrize("name", [system.name for system in SYSTEMS if "real" in system.clocks])
def test_a_system_carries_the_clients_traffic_and_nothing_goes_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "short.toml").write_text((Path(__file__).parent / "short.toml").read_text())
    file = tmp_path / "plan.toml"
    workloads = [workload for kind in SYSTEMS[name].carries for workload in WORKLOADS[kind]]
    seconds = '"workload.seconds" = 2\n' if "perf" in workloads else ""
    file.write_text(PLAN.format(system=name, workloads=json.dumps(workloads)) + seconds)
    plan, expansion = commands.prepared(file)
    (unit,) = schedule.units(plan, expansion.points, schedule.open_runs(plan, expansion.points, directory.State()))
    emulate.measure_all(unit, tmp_path)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(workloads)
    verdicts = Counter(line["result"]["verdict"] for line in lines)
    lacking = absent(SYSTEMS[name].programs)
    if lacking:
        assert verdicts == {"program missing": len(workloads)}
        assert all(lacking[0].remedy() in line["result"]["detail"] for line in lines)
        return
    assert set(verdicts) <= {"ok", "emulator late"}, [line["result"]["detail"] for line in lines]
    for line in lines:
        evidence = line["provenance"]["evidence"]
        assert evidence["address_seen_by_server"] == SERVER_SEES.get(name, "10.77.2.1")
        crossed = evidence["crossed"]
        least = line["result"]["bytes_received"]
        assert crossed["beside_bytes" if name == "direct" else "carried_bytes"] > least
        assert crossed["carried_bytes" if name == "direct" else "beside_bytes"] == 0
