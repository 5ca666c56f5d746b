"""Directories of processes that go away, and of those that were killed."""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from bentpipe_lab import scratch

OWNER = (
    "import time; from bentpipe_lab import scratch\n"
    "with scratch.directory() as place: print(place, flush=True); time.sleep(600)"
)
USER = (
    "import sys, time; from pathlib import Path; from bentpipe_lab import scratch\n"
    "with scratch.used(Path(sys.argv[1])): print('used', flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes of this machine have theirs elsewhere."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def started(code: str, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def killed(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.wait()


def test_it_goes_with_its_block() -> None:
    with scratch.directory() as place:
        assert place.is_dir()
        assert scratch.clean_leftovers(0) == []
    assert not place.exists()


def test_one_of_a_killed_process_is_removed_and_one_of_a_living_process_is_not() -> None:
    owner, place = started(OWNER)
    try:
        assert scratch.clean_leftovers(0) == []
        assert Path(place).is_dir()
    finally:
        killed(owner)
    assert scratch.clean_leftovers(0) == [place]
    assert not Path(place).exists()


def test_who_still_cleans_up_in_it_is_waited_for() -> None:
    owner, place = started(OWNER)
    user, said = started(USER, place)
    try:
        assert said == "used"
        killed(owner)
        assert scratch.clean_leftovers(0.2) == []
        assert Path(place).is_dir()
        threading.Timer(0.5, user.kill).start()
        begun = time.monotonic()
        assert scratch.clean_leftovers(30) == [place]
        assert time.monotonic() - begun < 20
    finally:
        for child in (owner, user):
            killed(child)


def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{scratch.PREFIX}without-a-lock").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    linked = tmp_path / f"{scratch.PREFIX}linked"
    linked.mkdir()
    (linked / scratch.OWNER).symlink_to(elsewhere)
    assert scratch.clean_leftovers(0) == []
    assert linked.is_dir()
