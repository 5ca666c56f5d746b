"""Waiting for a server to listen."""

import time

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import PATIENCE_S, Process


def wait(where: Namespace, port: int, process: Process) -> None:
    """Wait until a TCP port is listened at; it is looked up, so that the first connection is the one that counts."""
    deadline = time.monotonic() + PATIENCE_S
    while not where.run("ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = :{port}").strip():
        if process.exit_code is not None or time.monotonic() > deadline:
            raise ProgramError(f"{process.name} does not listen at port {port}{process.tail()}")
        time.sleep(0.02)
