"""Programs that systems and workloads need: found, missing with a remedy, built from what is pinned."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from bentpipe_lab import programs
from bentpipe_lab.campaign import plan, points
from bentpipe_lab.campaign import programs as commands
from bentpipe_lab.errors import MissingCapabilityError, UnknownNameError
from bentpipe_lab.programs import Debian, Go
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.openvpn import OpenVpn
from bentpipe_lab.workloads import WORKLOADS

PLAN = """\
name = "missing"
clock = "real"
[axes]
scenario = "leo"
system = "wireguard"
workload = "first byte"
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENTPIPE_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_every_program_says_which_version_it_is_and_how_it_is_installed() -> None:
    for part in (*SYSTEMS, *WORKLOADS):
        for program in part.programs:
            assert program.version()
            assert "install" in program.remedy()
            if isinstance(program, Go):
                assert (programs.SOURCES / program.source / "go.sum").stat().st_size > 0
                assert any(character.isdigit() for character in program.version().rpartition(" ")[2])


def test_what_is_missing_is_told_with_its_remedy() -> None:
    with pytest.raises(MissingCapabilityError, match="wireguard needs wireguard-go, which is not installed: `bentpipe"):
        SYSTEMS["wireguard"].require()


def test_a_missing_program_is_in_the_plan(tmp_path: Path) -> None:
    expansion = points.expand(plan.parse(PLAN, tmp_path))
    assert any("program missing: wireguard needs wireguard-go" in note for note in expansion.notes)


def test_a_program_built_from_other_sources_is_another(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SOURCES", tmp_path)
    module = tmp_path / "toy" / "go.mod"
    module.parent.mkdir()
    module.write_text("module toy\n\nrequire example.test/toy v1.0.0\n")
    toy = Go("toy", source="toy", module="example.test/toy")
    assert toy.version() == "example.test/toy v1.0.0"
    built = toy._built()
    built.parent.mkdir(parents=True)
    built.touch()
    assert toy.path() == built
    module.write_text("module toy\n\nrequire example.test/toy v1.1.0\n")
    assert toy.path() is None
    assert empty_cache.is_dir()


def test_an_unknown_program_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no program 'wiregard'; did you mean 'wireguard'"):
        commands.install(["wiregard"], Console(file=io.StringIO()))


def test_the_list_names_what_is_missing() -> None:
    out = io.StringIO()
    commands.show(Console(file=out, width=200))
    assert "missing: `bentpipe-lab programs install wireguard-go`" in out.getvalue()


def test_a_debian_program_off_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SYSTEM_PLACES", (str(tmp_path),))
    program = tmp_path / "daemon-of-the-administrator"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert Debian("daemon-of-the-administrator").path() == program
    assert OpenVpn.programs[0].remedy() == "apt-get install --no-install-recommends openvpn"
