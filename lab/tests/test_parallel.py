"""Tasks side by side: how they are ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from bentpipe_lab.campaign import parallel
from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.net import interrupt

LOSES_ONE = """
import pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
pathlib.Path(sys.argv[1]).touch()
while len(asked) < 2:
    time.sleep(0.01)
"""


@dataclass
class Deaf:
    """A task that does not hear the first time that it is asked to end."""

    directory: Path
    name: str = "deaf"

    def rounds(self) -> list[str]:
        """None that are measured."""
        return []

    def command(self) -> list[str]:
        """The program."""
        return [sys.executable, "-c", LOSES_ONE, str(self.directory / "begun")]


def test_a_task_that_has_not_heard_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "ASK_AGAIN_S", 0.2)

    def ctrl_c() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        parallel.run_tasks([cast(Task, Deaf(tmp_path))], 1, Console(quiet=True))


def test_a_path_of_a_campaign_that_has_not_heard_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "ASK_AGAIN_S", 0.2)
    child = subprocess.Popen([sys.executable, "-c", LOSES_ONE, str(tmp_path / "begun")])
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    interrupt.end(child)
    assert child.returncode == 0
