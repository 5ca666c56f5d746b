import sys
import time
from pathlib import Path

import pytest

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net.process import Process


def python(code: str, directory: Path) -> Process:
    return Process("program", [sys.executable, "-u", "-c", code], directory)


def test_lines_are_consumed_in_order(tmp_path: Path) -> None:
    process = python("print('ready: one'); print('noise'); print('ready: two'); input()", tmp_path)
    assert process.wait_line("ready") == "ready: one"
    assert process.wait_line("ready") == "ready: two"
    process.wait()


def test_an_end_before_the_line_tells_what_was_said(tmp_path: Path) -> None:
    process = python("import sys; sys.exit('no such field: colour')", tmp_path)
    with pytest.raises(ProgramError, match=r"ended with 1 before it said `ready`(?s:.)*no such field: colour"):
        process.wait_line("ready")


def test_silence_is_an_error(tmp_path: Path) -> None:
    process = python("import time; time.sleep(1000)", tmp_path)
    with pytest.raises(ProgramError, match="did not say"):
        process.wait_line("ready", patience_s=0.1)
    process.kill()


def test_a_program_that_ignores_ctrl_c_is_ended_all_the_same(tmp_path: Path) -> None:
    process = python(
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready'); time.sleep(1000)", tmp_path
    )
    process.wait_line("ready")
    assert process.stop(patience_s=0.2) < 0


def test_a_restarted_program_is_not_taken_for_ready_by_its_old_lines(tmp_path: Path) -> None:
    first = python("print('ready')", tmp_path)
    first.wait_line("ready")
    first.wait()
    second = python("import time; time.sleep(0.3); print('ready')", tmp_path)
    began = time.monotonic()
    second.wait_line("ready")
    assert time.monotonic() - began > 0.2
    second.wait()
