"""The journal: what is written stays, however its writer ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from bentpipe_lab.campaign import journal
from bentpipe_lab.campaign.journal import Journal
from bentpipe_lab.errors import DiskFullError


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for number in range(3):
        book = Journal(path)
        book.append("run", number=number)
        book.close()
    assert [event["number"] for event in journal.read(path)] == [0, 1, 2]


@pytest.mark.parametrize("kept", range(1, 20))
def test_a_line_that_a_crash_cut_off_is_not_read_and_not_built_upon(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "journal"
    whole = b'{"event":"run","number":0}\n'
    path.write_bytes(whole + b'{"event":"run","number":1}\n'[:kept])
    assert [event["number"] for event in journal.read(path)] == [0]
    book = Journal(path)
    book.append("run", number=2)
    book.close()
    assert [event["number"] for event in journal.read(path)] == [0, 2]


def test_a_writer_that_is_killed_loses_nothing_that_it_has_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    code = (
        "import sys; from pathlib import Path; from bentpipe_lab.campaign.journal import Journal\n"
        "book = Journal(Path(sys.argv[1]))\n"
        "for number in range(10**9): book.append('run', number=number); print(number, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(20)]
    child.kill()
    child.wait()
    child.stdout.close()
    assert [event["number"] for event in journal.read(path)][: len(told)] == told


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = tmp_path / "journal"
    full.symlink_to("/dev/full")
    book = Journal(full)
    with pytest.raises(DiskFullError, match=r"no room .* is kept; make room, then `bentpipe-lab resume`"):
        book.append("run", number=1)
    book.close()
