"""A campaign on a disk that is full: what was measured stays, every command says what is the matter, and it goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bentpipe_lab.campaign import directory
from bentpipe_lab.campaign.store import PROVENANCE
from conversation import PATIENCE_S

PLAN = """\
name = "small"
repetitions = 3
[axes]
scenario = "leo"
system = "quic"
workload = ["first byte", "download 2 MB"]
controller = ["cubic", "satellite"]
"scenario.forward.loss" = ["0 %", "0.1 %"]
"""
RUNS = 24
# In a mount namespace of its own: the disk is gone with the shell.
SCRIPT = """\
lab="$1 -m bentpipe_lab"; plan=$2; disk=$3; kept=$4
say() { name=$1; shift; "$@" >"$kept/$name.out" 2>&1; echo $? >"$kept/$name.code"; }
mount -t tmpfs -o size=200k tmpfs "$disk" || exit 77
say run $lab run "$plan" --out "$disk/campaign"
cp -r "$disk/campaign/runs" "$kept/runs-before"
say report $lab report "$disk/campaign"
mount -o remount,size=8m "$disk"
say resume $lab resume "$disk/campaign"
say written $lab report "$disk/campaign"
dd if=/dev/zero of="$disk/rest" 2>/dev/null
say again $lab report "$disk/campaign"
say export $lab export "$disk/campaign" --format duckdb
cp -r "$disk/campaign" "$kept/"
say begin $lab run "$plan" --out "$disk/another"
"""


@pytest.mark.long
def test_a_full_disk_costs_nothing_that_was_measured(tmp_path: Path) -> None:
    plan, disk, kept = tmp_path / "plan.toml", tmp_path / "disk", tmp_path / "kept"
    plan.write_text(PLAN)
    disk.mkdir()
    kept.mkdir()
    command = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", sys.executable, str(plan), str(disk), str(kept)]
    subprocess.run(command, check=True, timeout=PATIENCE_S * 4)

    def said(name: str) -> tuple[int, str]:
        text = " ".join((kept / f"{name}.out").read_text().split())
        return int((kept / f"{name}.code").read_text()), text

    for name in ("run", "report", "again", "export", "begin"):
        code, text = said(name)
        assert code == 1, (name, text)
        assert "cannot go on: no room at " in text, text
        assert "Traceback" not in text
    for name in ("resume", "written"):
        assert said(name)[0] == 0, said(name)

    before, after = _runs(kept / "runs-before"), _runs(kept / "campaign" / directory.RUNS)
    assert 0 < sum(name.endswith("result.json") for name in before) < RUNS
    assert sum(name.endswith("result.json") for name in after) == RUNS
    results = {name: content for name, content in before.items() if name.endswith("result.json")}
    assert results.items() <= after.items(), "what was complete has not been touched"
    assert (kept / "campaign" / directory.REPORT / "index.html").stat().st_size > 0, "the earlier report stands"
    assert not list((kept / "campaign").rglob("*.part"))


def _runs(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*.json")
        if path.name != PROVENANCE and json.loads(path.read_text() or "null") is not None
    }
