"""The lab leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bentpipe_lab.net import host, netns
from bentpipe_lab.net.topology import Topology, topology
from conversation import PATIENCE_S


def test_a_path_is_gone_after_success_and_after_an_exception(tmp_path: Path) -> None:
    names: list[str] = []
    with pytest.raises(ZeroDivisionError), topology(tmp_path) as path:
        names = [namespace.name for namespace in path.namespaces]
        assert set(names) <= netns.existing()
        raise ZeroDivisionError
    assert names
    assert not set(names) & netns.existing()


def test_what_a_killed_run_left_is_found_and_removed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from bentpipe_lab.net.topology import topology\n"
        f"with topology(Path({str(tmp_path)!r})) as path: print(path.run, flush=True); time.sleep(1000)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    run = child.stdout.readline().strip()
    assert host.namespaces_of(run)
    child.kill()
    child.wait()
    # What it removes is not looked at: whoever starts a run beside this test may have been first.
    host.clean_leftovers()
    assert not host.namespaces_of(run)


def test_a_living_run_is_not_taken_for_a_leftover(path: Topology) -> None:
    host.clean_leftovers()
    assert host.namespaces_of(path.run)


ASKED_INSIDE = """\
import os, random, signal, sys, threading
from bentpipe_lab.net import interrupt, netns

def here(): return os.readlink("/proc/thread-self/ns/net")

namespace, home = netns.Namespace(sys.argv[1]), here()
for _ in range(300):
    try:
        with interrupt.as_exception():
            threading.Timer(random.uniform(0, 0.002), os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                with namespace.entered(): pass
    except KeyboardInterrupt:
        assert here() == home
"""


def test_who_is_asked_to_end_inside_a_namespace_is_outside_when_it_hears() -> None:
    """Inside it would kill itself, with everything that runs there, and leave the path's other namespaces."""
    with host.owned_run() as run:
        namespace = netns.Namespace(f"{run}-inside")
        try:
            namespace.create()
            subprocess.run([sys.executable, "-c", ASKED_INSIDE, namespace.name], check=True, timeout=PATIENCE_S)
        finally:
            namespace.delete()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "demo"
    with (tmp_path / "said").open("w") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "bentpipe_lab", "demo", "--quick", "--out", str(out)],
            stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    try:
        records = out / "runs" / "geo-bentpipe" / "terminal.out"
        deadline = time.monotonic() + PATIENCE_S
        while not (records.exists() and "session: up" in records.read_text()):
            assert child.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        runs = [f"bp{pid}-" for pid in _children(child.pid)]
        assert any(name.startswith(run) for run in runs for name in netns.existing())
        child.send_signal(number)
        assert child.wait(PATIENCE_S) == 128 + signal.SIGINT, (tmp_path / "said").read_text()
    finally:
        child.kill()
        child.wait()
    assert not [name for run in runs for name in netns.existing() if name.startswith(run)]
    assert not _processes_that_mention(str(out))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _processes_that_mention(text: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found
