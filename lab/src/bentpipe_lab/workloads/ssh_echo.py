"""An SSH session: how long a typed character takes to come back."""

import os
import select
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bentpipe_lab.net.link import Link
from bentpipe_lab.net.netns import checked
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.contract import Metric, Workload
from bentpipe_lab.workloads.parts import command, listening
from bentpipe_lab.workloads.programs import inside

SSH, SSHD = Debian("ssh", package="openssh-client"), Debian("sshd", package="openssh-server")
PORT = 2222
KEYS = 20
EVERY_S = 0.2
"""As fast as people type."""
ECHO_S = 60.0
CONFIGURATION = """\
Port {port}
ListenAddress {address}
HostKey {directory}/host
PidFile none
AuthorizedKeysFile {directory}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
UseDNS no
"""


class SshEcho(Workload):
    """A session that stands; then characters, one every 200 ms, each timed until it is back."""

    name = "ssh echo"
    order = 112
    measures = "median time until a typed character is back"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 30.0
    programs = (SSH, SSHD)
    metrics: ClassVar[Mapping[str, Metric]] = {
        "login_s": Metric("until the session stands", "s"),
        "echo_p95_s": Metric("character and back, 95 %", "s"),
    }

    def run(self, path: Topology) -> Outcome:
        """Open a session that sends back what it gets, and type into it."""
        directory = path.directory.absolute() / "ssh"
        if not path.runs("sshd"):
            _serve(path, directory)
        argv = [
            str(SSH.found()), "-F", "none", "-p", str(PORT), "-i", str(directory / "user"), "-o", "BatchMode=yes",
            "-o", f"UserKnownHostsFile={directory}/known_hosts", "-o", "StrictHostKeyChecking=yes", f"root@{SERVER4}",
            "echo ready; exec cat",
        ]  # fmt: skip
        began = time.monotonic()
        with inside.started(path, argv) as session:
            assert session.stdin is not None
            assert session.stdout is not None
            if not _read(session, b"ready\n"):
                session.kill()
                said = session.communicate()[1]
                verdict = next((verdict for words, verdict in command.SAID if words in said), Verdict.FAILED)
                return Outcome(verdict, detail=f"ssh: {said.strip()[-inside.MOST_SAID :]}")
            login = time.monotonic() - began
            echoes = []
            for number in range(KEYS):
                typed = bytes([ord("a") + number % 26])
                then = time.monotonic()
                os.write(session.stdin.fileno(), typed)
                if not _read(session, typed):
                    return Outcome(Verdict.STALLED, detail=f"character {number + 1} of {KEYS} did not come back")
                echoes.append(time.monotonic() - then)
                time.sleep(max(0.0, EVERY_S - echoes[-1]))
        high = sorted(echoes)[int(0.95 * (KEYS - 1))]
        metrics = {"login_s": login, "echo_p95_s": high}
        return Outcome(Verdict.OK, statistics.median(echoes), KEYS, metrics=metrics)

    def bound_s(self, link: Link) -> float:
        """A round trip."""
        return link.path_rtt_s


def _serve(path: Topology, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name in ("host", "user"):
        if not (directory / name).exists():
            checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)])
    host = (directory / "host.pub").read_text()
    (directory / "known_hosts").write_text(f"[{SERVER4}]:{PORT} {host}")
    configuration = directory / "sshd_config"
    configuration.write_text(CONFIGURATION.format(port=PORT, address=SERVER4, directory=directory))
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = path.start("sshd", path.server, [SSHD.found(), "-D", "-e", "-f", configuration])
    listening.wait(path.server, PORT, daemon)


def _read(session: "subprocess.Popen[str]", wanted: bytes) -> bool:
    """Read until something is there; False at the end, or after a time that no link explains."""
    assert session.stdout is not None
    descriptor, found = session.stdout.fileno(), b""
    deadline = time.monotonic() + ECHO_S
    while wanted not in found:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 4096) if readable else b""
        if not chunk:
            return False
        found += chunk
    return True
