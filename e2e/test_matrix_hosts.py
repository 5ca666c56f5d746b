"""A matrix whose client and server are on other machines: SSH servers in namespaces stand for them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w

from bentpipe_lab.matrix import agent
from bentpipe_lab.net import host, netns
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.stacks import certificates
from bentpipe_lab.workloads.parts import listening
from bentpipe_lab.workloads.ssh_echo import SSHD

PORT = 2022
ADDRESSES = {"client": "10.79.1.2", "server": "10.79.2.2"}
"""As the lab's machine reaches them."""
BETWEEN = {"client": "10.79.3.1", "server": "10.79.3.2"}
"""Over their own access."""
CONFIGURATION = """\
Port {port}
ListenAddress {address}
HostKey {directory}/host
PidFile none
AuthorizedKeysFile {directory}/../user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
UseDNS no
Subsystem sftp internal-sftp
"""
AHEAD_S = 0.25
EARLY = f"import time; now = time.time_ns; time.time_ns = lambda: now() + {int(AHEAD_S * 1e9)}\n"
"""What Python runs when it starts on a machine whose clock is ahead."""


@dataclass(frozen=True)
class Machines:
    """Three machines: the lab's, and two that SSH reaches."""

    lab: Namespace
    hosts: dict[str, Namespace]
    directory: Path

    def table(self, link: str, **client: str) -> dict[str, Any]:
        """A plan's [hosts]."""
        common = {
            "checkout": str(host.REPOSITORY), "python": sys.executable, "key": str(self.directory / "user"),
            "known_hosts": str(self.directory / "known_hosts"),
        }  # fmt: skip
        sides: dict[str, dict[str, str]] = {
            side: {"ssh": f"root@{address}:{PORT}", **common} for side, address in ADDRESSES.items()
        }
        if link == "real":
            sides["client"]["device"] = sides["server"]["device"] = "access0"
            sides["server"]["address"] = BETWEEN["server"]
        return {"link": link, "client": {**sides["client"], **client}, "server": sides["server"]}

    def matrix(self, out: Path, hosts: dict[str, Any]) -> tuple[dict[str, Any], Path]:
        """Run one download from the lab's machine; its result and where it is."""
        plan = out.with_suffix(".toml")
        axes = {
            "system": "direct", "workload": "quic download", "scenario": "qir-goodput", "workload.client": "ngtcp2",
            "workload.server": "ngtcp2",
            "workload.file": "2MB", "workload.limit": "60 s",
        }  # fmt: skip
        table = {"name": "apart", "clock": "real", "late_repeats": 0, "parallel": 1, "axes": axes, "hosts": hosts}
        plan.write_text(tomli_w.dumps(table))
        argv = [sys.executable, "-m", "bentpipe_lab", "run", str(plan), "--out", str(out)]
        done = subprocess.run(self.lab.command(argv), capture_output=True, text=True, timeout=200, check=False)
        result = next(out.glob("runs/*/*/result.json"), None)
        assert result is not None, done.stdout + done.stderr
        return json.loads(result.read_text()), result.parent


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """They stand, with an SSH server on each of the two."""
    directory = tmp_path_factory.mktemp("machines")
    Path("/run/sshd").mkdir(exist_ok=True)
    with host.owned_run() as run:
        lab, client, server = (Namespace(f"{run}-{name}") for name in ("lab", "far-client", "far-server"))
        daemons: list[Process] = []
        try:
            for each in (lab, client, server):
                each.create()
            _join(lab, "toclient", "10.79.1.1", client, "tolab", ADDRESSES["client"])
            _join(lab, "toserver", "10.79.2.1", server, "tolab", ADDRESSES["server"])
            _join(client, "access0", BETWEEN["client"], server, "access0", BETWEEN["server"])
            netns.checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "user")])
            known = []
            for side, where in (("client", client), ("server", server)):
                daemons.append(_serve(side, where, directory / side))
                known.append(f"[{ADDRESSES[side]}]:{PORT} {(directory / side / 'host.pub').read_text()}")
            (directory / "known_hosts").write_text("".join(known))
            yield Machines(lab, {"client": client, "server": server}, directory)
        finally:
            for daemon in daemons:
                daemon.stop()
            for each in (lab, client, server):
                each.delete()


def _join(near: Namespace, name: str, near4: str, far: Namespace, far_name: str, far4: str) -> None:
    netns.veth(near, name, far, far_name)
    near.ip("address", "add", f"{near4}/24", "dev", name)
    far.ip("address", "add", f"{far4}/24", "dev", far_name)


def _serve(side: str, where: Namespace, directory: Path) -> Process:
    directory.mkdir()
    netns.checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "host")])
    configuration = directory / "sshd_config"
    configuration.write_text(CONFIGURATION.format(port=PORT, address=ADDRESSES[side], directory=directory))
    daemon = Process(f"sshd-{side}", where.command([SSHD.found(), "-D", "-e", "-f", configuration]), directory)
    listening.wait(where, PORT, daemon)
    return daemon


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with an implementation that comes from the distribution."""
    where = tmp_path_factory.mktemp("stacks")
    environment = {**os.environ, "BENTPIPE_STACKS": str(where)}
    subprocess.run([sys.executable, "-m", "bentpipe_lab", "stacks", "install", "ngtcp2"], env=environment, check=True)
    return where


def left(machines: Machines) -> list[str]:
    """Programs of runs that are still there."""
    pids = [pid for where in machines.hosts.values() for pid in where.pids()]
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in pids]
    return [command for command in commands if "sshd" not in command]


@pytest.mark.long
@pytest.mark.parametrize("link", ["emulated", "real"])
def test_a_download_between_two_other_machines(machines: Machines, installed: Path, tmp_path: Path, link: str) -> None:
    hosts = machines.table(link, python=str(early_python(tmp_path)))
    for side in ("client", "server"):
        hosts[side]["stacks"] = str(installed)
    result, directory = machines.matrix(tmp_path / link, hosts)
    assert result["verdict"] in ("ok", "emulator late"), result
    metrics = result["metrics"]
    assert metrics["handshake_s"] < metrics["last_byte_s"]
    assert abs(metrics["client_clock_ahead_s"] - AHEAD_S) <= metrics["client_clock_uncertain_s"]
    assert abs(metrics["server_clock_ahead_s"]) <= metrics["server_clock_uncertain_s"]
    provenance = json.loads((directory / "provenance.json").read_text())
    assert provenance["evidence"]["hosts"]["server"] == f"root@{ADDRESSES['server']}:{PORT}"
    sent, came = (first_byte_ns(directory / f"{side}-streams.parquet") for side in ("server", "client"))
    # tcpdump's clock is the machine's own, which is right: the correction shows in the tables.
    one_way_s = (came - sent) / 1e9 + AHEAD_S
    unsure_s = metrics["client_clock_uncertain_s"] + metrics["server_clock_uncertain_s"]
    if link == "emulated":
        assert one_way_s > 0.015 - unsure_s
        assert (directory / "link.parquet").is_file()
    else:
        assert -unsure_s < one_way_s < 10
    assert not left(machines)


def early_python(directory: Path) -> Path:
    """Python whose clock is ahead."""
    (directory / "sitecustomize.py").write_text(EARLY)
    wrapper = directory / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={directory}:$PYTHONPATH exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def first_byte_ns(table: Path) -> int:
    """When the first byte of the server's streams passed."""
    moment = pl.read_parquet(table).filter(~pl.col("from_client"))["time_ns"].min()
    assert isinstance(moment, int)
    return moment


def test_an_end_whose_lab_is_gone_leaves_nothing_behind(machines: Machines, installed: Path, tmp_path: Path) -> None:
    certificates.make(tmp_path / "certificates", Authority.at(tmp_path / "authority"), ["server"], [BETWEEN["server"]])
    texts = {name: (tmp_path / "certificates" / name).read_text() for name in ("ca.pem", "cert.pem", "priv.key")}
    task = agent.Task(
        "server", "ngtcp2", "h3", {}, "2MB", 60, BETWEEN["server"], texts, "access0", None,
    )  # fmt: skip
    environment = {**os.environ, "BENTPIPE_STACKS": str(installed), "TMPDIR": str(tmp_path)}
    argv = machines.hosts["server"].command([sys.executable, "-m", "bentpipe_lab.matrix.agent"])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as end:
        assert end.stdin is not None
        assert end.stdout is not None
        end.stdin.write(task.line())
        end.stdin.flush()
        assert json.loads(end.stdout.readline()) == {"event": "ready"}
        assert [command for command in left(machines) if "gtlsserver" in command]
        assert list(tmp_path.glob("bentpipe-end-*"))
        end.stdin.close()
        end.wait(30)
    assert not left(machines)
    assert not list(tmp_path.glob("bentpipe-end-*"))


def test_a_machine_with_another_host_key_is_refused(machines: Machines, tmp_path: Path) -> None:
    lines = (machines.directory / "known_hosts").read_text().splitlines()
    theirs, ours = (line.partition(" ")[2] for line in lines)
    known = tmp_path / "known_hosts"
    known.write_text((machines.directory / "known_hosts").read_text().replace(theirs, ours))
    result, _ = machines.matrix(tmp_path / "refused", machines.table("real", known_hosts=str(known)))
    assert result["verdict"] == "failed"
    assert "its host key is not the one in" in result["detail"]
    assert "ssh-keyscan" in result["detail"]
    assert not left(machines)
