"""The cache of installed implementations: a directory that the user chooses, nothing of it in the repository."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bentpipe_lab.errors import LabError
from bentpipe_lab.stacks.manifest import INSTALL, Manifest

NOT_TO_BE_HAD = 127
"""Exit code of `install` and `run_endpoint` for what is not to be had here."""
STATE = "installed.json"
LOG_TAIL = 600
MOST_S = 3600.0
"""An installation may take so long."""


@dataclass(frozen=True)
class Installation:
    """What came of installing an implementation."""

    version: str | None
    """As its `install` printed it; None when it is not installed."""
    why: str
    """Why it is not installed; empty when it is."""
    took_s: float


def root(chosen: Path | None = None) -> Path:
    """The cache: as chosen, or $BENTPIPE_STACKS, or below the user's cache directory."""
    if chosen is not None:
        return chosen.absolute()
    if given := os.environ.get("BENTPIPE_STACKS"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bentpipe" / "stacks"


def directory(cache: Path, manifest: Manifest) -> Path:
    """Where an implementation is installed."""
    return cache / manifest.name


def installation(cache: Path, manifest: Manifest) -> Installation | None:
    """What came of the last attempt; None when there was none, or when it was of another version."""
    try:
        table = json.loads((directory(cache, manifest) / STATE).read_text())
        wanted = table.pop("wanted")
        return Installation(**table) if wanted == manifest.version else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def install(cache: Path, manifest: Manifest) -> Installation:
    """Run its `install`; a failure is told, not raised, so that the others can go on."""
    target = directory(cache, manifest)
    build = cache / "build" / manifest.name
    for path in (target, build):
        path.mkdir(parents=True, exist_ok=True)
    script = manifest.directory / INSTALL
    log = cache / f"{manifest.name}.log"
    environment = {**os.environ, "STACK": str(target), "BUILD": str(build), "VERSION": manifest.version}
    began = time.monotonic()
    try:
        with log.open("wb") as said:
            done = subprocess.run(
                [str(script)], env=environment, cwd=manifest.directory, stdin=subprocess.DEVNULL, check=False,
                stdout=subprocess.PIPE, stderr=said, timeout=MOST_S,
            )  # fmt: skip
    except OSError as error:
        raise LabError(f"{script} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        result = Installation(None, f"not done after {MOST_S:.0f} s; see {log}", MOST_S)
    else:
        took = round(time.monotonic() - began, 1)
        printed = done.stdout.decode(errors="replace").strip().splitlines()
        if done.returncode == 0 and printed:
            result = Installation(printed[-1], "", took)
            shutil.rmtree(build, ignore_errors=True)
        elif done.returncode == NOT_TO_BE_HAD:
            result = Installation(None, f"not to be had here: {_last(log)}", took)
        else:
            result = Installation(None, f"install ended with {done.returncode}: {_last(log)}", took)
    state = {**asdict(result), "wanted": manifest.version}
    (target / STATE).write_text(json.dumps(state, indent=1) + "\n")
    return result


def _last(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else "it said nothing")[:LOG_TAIL]
