"""What the product says of a configuration, before anything is started with it."""

import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from bentpipe_lab.errors import PlanError
from bentpipe_lab.net import host


def check(role: Literal["terminal", "gateway"], text: str) -> None:
    """Raise a `PlanError` with what `bentpipe check` says of a configuration that is wrong."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        file = Path(directory, f"{role}.toml")
        file.write_text(text)
        argv = [str(host.binary()), "check", str(file), "--role", role]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        # The reason is the last line; those before it show its place in a file that nobody has written.
        raise PlanError(done.stderr.strip().rpartition("\n")[2])


def check_controller(name: str) -> None:
    """Raise a `PlanError` for a congestion controller that the product does not have."""
    check("gateway", f'listen = "127.0.0.1:1"\n[transport]\ncontroller = "{name}"\n')
