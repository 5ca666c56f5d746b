"""Running it: who may use it, what it tells, what changes while it runs, and how it ends."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import PRIVATE4, SERVER4, Topology, topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe, Transport, enrolment, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import Server, assert_made_and_reset, assert_reset, connect, conversation, eventually

CAP_NET_BIND_SERVICE = 1 << 10
CAP_NET_ADMIN = 1 << 12
CAP_NET_RAW = 1 << 13
NOBODY = 65534
NO_SOCKETS = shutil.ignore_patterns("*.sock")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path) as built:
        yield built


@pytest.fixture
def own_tunnel(path: Topology) -> Bentpipe:
    return start_bentpipe(path)


def run(where: Namespace, *words: str | Path, said: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run bentpipe to its end; `said` is its standard input."""
    command = where.command([host.binary(), *words])
    return subprocess.run(command, input=said or "", capture_output=True, text=True, check=False, timeout=90)


def works(tunnel: Bentpipe) -> bool:
    """Whether a download through the tunnel succeeds now."""
    return curl.download(tunnel.path, "2MB").verdict is Verdict.OK


def says(end: Process, words: str) -> bool:
    """Whether an end has logged some words."""
    return words in end.log.read_text()


def gateway(tunnel: Bentpipe, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a subcommand of `bentpipe gateway` on the gateway's files."""
    return run(tunnel.path.gateway, "gateway", *words, "--config", tunnel.gateway_config)


def status(config: Path) -> dict[str, Any]:
    """What an end tells of itself."""
    done = subprocess.run(
        [host.binary(), "status", "--json", "--config", config], capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_revoked_terminal_is_out_at_once(own_tunnel: Bentpipe) -> None:
    (terminal,) = json.loads(gateway(own_tunnel, "terminals", "list", "--json").stdout)
    assert gateway(own_tunnel, "terminals", "name", terminal["key"], "boat-1").returncode == 0
    assert "boat-1" in gateway(own_tunnel, "terminals", "list").stdout
    with conversation(own_tunnel.path) as (client, _):
        assert gateway(own_tunnel, "terminals", "revoke", "boat-1").returncode == 0
        assert_reset(client)
    eventually(lambda: "no longer enrolled" in own_tunnel.terminal.log.read_text(), "the terminal is told")
    (line,) = json.loads(gateway(own_tunnel, "lines", "list", "--json").stdout)
    assert line["used_by"] == terminal["key"]


def test_lines_expire_are_listed_and_withdrawn(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    def line(*options: str) -> str:
        done = gateway(own_tunnel, "init", "--endpoint", "10.77.1.2:4433", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    expired, withdrawn = line("--valid", "0s"), line("--name", "boat-2")
    listed = gateway(own_tunnel, "lines", "list").stdout
    assert "expired at" in listed
    assert re.search(r"boat-2 .* good until", listed)
    assert gateway(own_tunnel, "lines", "withdraw", "boat-2").returncode == 0
    for text, why in ((expired, "has expired"), (withdrawn, "not enrolled")):
        config = tmp_path / why.replace(" ", "-") / "terminal.toml"
        config.parent.mkdir()
        joining = run(own_tunnel.path.terminal, "terminal", "join", "--config", config, said=text)
        assert joining.returncode != 0
        assert why in joining.stderr


def test_a_used_line_says_so(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    line = enrolment(own_tunnel.path, own_tunnel.gateway_config)
    file = tmp_path / "line"
    file.write_text(line + "\n")
    for name, accepted in (("first", True), ("second", False)):
        config = tmp_path / name / "terminal.toml"
        joining = run(own_tunnel.path.terminal, "terminal", "join", "--config", config, "--line-file", file)
        assert (joining.returncode == 0) is accepted, joining.stderr
    assert "has been used by the terminal sha256:" in joining.stderr


def test_no_error_shows_a_secret(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    line = enrolment(own_tunnel.path, own_tunnel.gateway_config)
    secret = line.partition("secret=")[2]
    damaged = line.replace("key=", "kay=")
    for joining in (
        run(own_tunnel.path.terminal, "terminal", "join", "--config", tmp_path / "terminal.toml", damaged),
        run(own_tunnel.path.terminal, "terminal", "join", "--config", tmp_path / "terminal.toml", said=damaged),
    ):
        assert joining.returncode == 2
        assert "not an enrolment line" in joining.stderr
        assert secret not in joining.stderr + joining.stdout


def test_files_are_their_owners_alone(own_tunnel: Bentpipe) -> None:
    for file in (
        own_tunnel.gateway_config.with_name("gateway.key"),
        own_tunnel.gateway_config.with_name("terminals.toml"),
        own_tunnel.gateway_config.with_name("terminals.lock"),
        own_tunnel.terminal_config.with_name("terminal.key"),
    ):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_key_that_others_can_read_is_refused(own_tunnel: Bentpipe) -> None:
    own_tunnel.terminal.stop()
    own_tunnel.terminal_config.with_name("terminal.key").chmod(0o644)
    refused = run(own_tunnel.path.terminal, "terminal", "--config", own_tunnel.terminal_config)
    assert refused.returncode == 2
    assert "chmod 600" in refused.stderr


def test_a_file_that_is_no_key_is_told_in_words(own_tunnel: Bentpipe) -> None:
    own_tunnel.terminal.stop()
    own_tunnel.terminal_config.with_name("terminal.key").write_text("rubbish")
    refused = run(own_tunnel.path.terminal, "terminal", "--config", own_tunnel.terminal_config)
    assert "terminal.key" in refused.stderr
    assert "private key in PEM" in refused.stderr
    assert "malformed" not in refused.stderr


def test_no_configuration_names_the_command_that_makes_one(path: Topology, tmp_path: Path) -> None:
    assert "gateway init" in run(path.gateway, "gateway", "--config", tmp_path / "none.toml").stderr
    assert "terminal join" in run(path.terminal, "terminal", "--config", tmp_path / "none.toml").stderr


def test_check_tells_right_from_wrong(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    for config in (own_tunnel.gateway_config, own_tunnel.terminal_config):
        assert run(own_tunnel.path.gateway, "check", config).returncode == 0
    wrong = tmp_path / "terminal.toml"
    wrong.write_text('[ingress.socks5]\nlisten = "0.0.0.0:1080"\n')
    told = run(own_tunnel.path.gateway, "check", wrong)
    assert told.returncode == 2
    assert str(wrong) in told.stderr
    assert "clients" in told.stderr


def test_a_reload_changes_egress_and_drops_no_flow(own_tunnel: Bentpipe) -> None:
    right = own_tunnel.gateway_config.read_text()
    with conversation(own_tunnel.path) as (client, peer):
        own_tunnel.gateway_config.write_text(right.replace('allow = ["', f'allow = ["{PRIVATE4}/32", "'))
        own_tunnel.gateway.signal(signal.SIGHUP)
        own_tunnel.terminal.signal(signal.SIGHUP)
        eventually(lambda: "reloaded" in own_tunnel.gateway.log.read_text(), "the gateway tells")
        eventually(lambda: "reloaded" in own_tunnel.terminal.log.read_text(), "the terminal tells")
        with conversation(own_tunnel.path, PRIVATE4):
            pass
        client.sendall(b"still there?")
        assert peer.recv(100) == b"still there?"


def test_a_wrong_file_changes_nothing(own_tunnel: Bentpipe) -> None:
    with conversation(own_tunnel.path) as (client, peer):
        for end, config in (
            (own_tunnel.gateway, own_tunnel.gateway_config),
            (own_tunnel.terminal, own_tunnel.terminal_config),
        ):
            config.write_text("colour = 3\n")
            end.signal(signal.SIGHUP)
            eventually(partial(says, end, "all stays as it was"), "it is told")
        client.sendall(b"still there?")
        assert peer.recv(100) == b"still there?"
    assert works(own_tunnel)


def test_status_tells_sessions_and_flows(own_tunnel: Bentpipe) -> None:
    server = Server(own_tunnel.path.server)
    refused = server.address
    server.close()
    assert_made_and_reset(own_tunnel.path.client, refused)
    with conversation(own_tunnel.path):
        for config, role in ((own_tunnel.gateway_config, "gateway"), (own_tunnel.terminal_config, "terminal")):
            told = status(config)
            assert told["role"] == role
            (session,) = told["sessions"]
            assert session["rtt_ms"] > 0
            assert told["flows"]["open"] == 1
            assert told["flows"]["failed"] == {"connection_refused": 1}
    assert "session" in run(own_tunnel.path.gateway, "status", "--config", own_tunnel.gateway_config).stdout
    own_tunnel.gateway.stop()
    assert run(own_tunnel.path.gateway, "status", "--config", own_tunnel.gateway_config).returncode == 1


def test_prometheus_reads_figures(own_tunnel: Bentpipe) -> None:
    own_tunnel.terminal.stop()
    text = own_tunnel.terminal_config.read_text()
    own_tunnel.terminal_config.write_text('[metrics]\nlisten = "127.0.0.1:9477"\n' + text)
    own_tunnel.start_terminal()
    url = "http://127.0.0.1:9477/metrics"
    told = own_tunnel.path.terminal.run("curl", "-sS", "--fail", "--max-time", "20", url)
    assert "bentpipe_sessions 1\n" in told
    assert re.search(
        r'^bentpipe_session_rtt_seconds\{peer="10\.77\.1\.2:4433",key="sha256:[^"]+"\} 0\.\d+$', told, re.M
    )
    for line in told.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .*|[a-z_]+(\{.*\})? [0-9.]+", line), line


@pytest.mark.parametrize("role", ["terminal", "gateway"])
def test_an_end_that_is_stopped_lets_open_flows_end(own_tunnel: Bentpipe, role: str) -> None:
    """And tells meanwhile how it stands."""
    end = own_tunnel.terminal if role == "terminal" else own_tunnel.gateway
    config = own_tunnel.terminal_config if role == "terminal" else own_tunnel.gateway_config
    with conversation(own_tunnel.path) as (client, peer):
        end.signal(signal.SIGTERM)
        eventually(lambda: "SIGTERM" in end.log.read_text(), "it has heard")
        assert status(config)["flows"]["open"] == 1
        client.sendall(b"the last words")
        assert peer.recv(100) == b"the last words"
        peer.shutdown(socket.SHUT_WR)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        assert peer.recv(1) == b""
    assert end.wait() == 0
    assert "time to drain is over" not in end.log.read_text()


def test_an_end_whose_listeners_have_gone_works_and_ends_in_order(own_tunnel: Bentpipe) -> None:
    """Standard output and standard error are closed pipes."""
    own_tunnel.terminal.stop()
    text = own_tunnel.terminal_config.read_text()
    table = "[ingress.transparent]\n"
    own_tunnel.terminal_config.write_text(text.replace(table, f'{table}after_stop = "release"\n'))
    read, write = os.pipe()
    words: list[str | Path] = [host.binary(), "terminal", "--config", own_tunnel.terminal_config.absolute()]
    terminal = subprocess.Popen(own_tunnel.path.terminal.command(words), stdout=write, stderr=write)
    os.close(read)
    os.close(write)
    eventually(lambda: works(own_tunnel), "it works")
    terminal.send_signal(signal.SIGTERM)
    assert terminal.wait(90) == 0
    assert "bentpipe_" not in own_tunnel.path.terminal.run("nft", "list", "tables")


def test_two_machines_with_one_key_are_told_apart_by_both_ends(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(own_tunnel.terminal_config.parent, copy, ignore=NO_SOCKETS)
    config = copy / "terminal.toml"
    config.write_text('[ingress.socks5]\nlisten = "127.0.0.1:1090"\n[transport]\nmemory = "256 MiB"\n')
    second = own_tunnel.path.start("copy", own_tunnel.path.terminal, [host.binary(), "terminal", "--config", config])
    second.wait_line("session: up")
    for end in (own_tunnel.terminal, second):
        eventually(partial(says, end, "another machine uses this terminal's key"), "both are told")
    assert "several machines use this terminal's key" in own_tunnel.gateway.log.read_text()
    assert works(own_tunnel), "each has its session"
    own_tunnel.path.terminal.run(
        "curl", "-sS", "--fail", "--max-time", "90", "--socks5-hostname", "127.0.0.1:1090", "-o", tmp_path / "got",
        f"http://{SERVER4}/2MB",
    )  # fmt: skip
    assert "replaced" not in own_tunnel.gateway.log.read_text(), "they do not fight"


def test_keys_change_while_a_flow_is_open(own_tunnel: Bentpipe) -> None:
    """The gateway's and the terminal's; nobody waits for either."""
    gateway, terminal = own_tunnel.gateway, own_tunnel.terminal

    def key(end: str, *words: str) -> str:
        config = own_tunnel.gateway_config if end == "gateway" else own_tunnel.terminal_config
        where = own_tunnel.path.gateway if end == "gateway" else own_tunnel.path.terminal
        return where.run(host.binary(), end, "key", *words, "--config", config.absolute())

    with conversation(own_tunnel.path) as (client, peer):
        old = key("gateway", "show").split()[2]
        with pytest.raises(LabError, match="there is no next key"):
            key("gateway", "use")
        key("gateway", "next")
        with pytest.raises(LabError, match="do not know the next key yet"):
            key("gateway", "use")
        gateway.signal(signal.SIGHUP)
        eventually(lambda: " knows it" in key("gateway", "show"), "the terminal has written the next key down")
        new = key("gateway", "use").split()[2].rstrip(";")
        assert new != old
        gateway.signal(signal.SIGHUP)
        eventually(lambda: "see the gateway's new key" in gateway.log.read_text(), "it takes its new key")
        before = key("terminal", "show")
        after = key("terminal", "renew").split()[-1]
        assert after not in before
        terminal.signal(signal.SIGHUP)
        eventually(lambda: "session with this terminal's new key" in terminal.log.read_text(), "a session with it")
        assert works(own_tunnel)
        client.sendall(b"in the old session")
        assert peer.recv(100) == b"in the old session"
    eventually(lambda: "old key is good no longer" in gateway.log.read_text(), "the old key is worthless")
    pairing = own_tunnel.terminal_config.with_name("pairing.toml").read_text()
    assert new in pairing
    assert old not in pairing
    assert terminal.stop() == 0
    own_tunnel.start_terminal()
    assert works(own_tunnel)


def test_root_is_not_kept(own_tunnel: Bentpipe) -> None:
    for end in (own_tunnel.terminal, own_tunnel.gateway):
        fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{end.pid}/status").read_text().splitlines())
        files = 1 << 1 | 1 << 2
        # Rules and routes, ICMP errors, the resolver's port.
        needed = CAP_NET_ADMIN | CAP_NET_RAW | CAP_NET_BIND_SERVICE if end is own_tunnel.terminal else 0
        assert int(fields["CapEff"], 16) & ~files == needed
        assert fields["NoNewPrivs"] == "1"


def test_a_named_user_is_become(own_tunnel: Bentpipe) -> None:
    own_tunnel.gateway.stop()
    home = Path("/tmp") / f"{own_tunnel.path.run}-gateway"  # noqa: S108 (nobody may not enter the test's directory)
    shutil.copytree(own_tunnel.gateway_config.parent, home, ignore=NO_SOCKETS)
    try:
        for file in [home, *home.iterdir()]:
            os.chown(file, NOBODY, NOBODY)
        config = home / "gateway.toml"
        config.write_text('user = "nobody"\n' + config.read_text())
        own_tunnel.gateway_config = config
        own_tunnel.start_gateway()
        assert Path(f"/proc/{own_tunnel.gateway.pid}").stat().st_uid == NOBODY
        fields = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{own_tunnel.gateway.pid}/status").read_text().splitlines()
        )
        assert int(fields["CapPrm"], 16) == 0
        eventually(lambda: works(own_tunnel), "it works")
        assert (home / "gateway.sock").exists()
        own_tunnel.gateway.stop()
    finally:
        shutil.rmtree(home)


def test_slow_names_delay_nobody_else(path: Topology, tmp_path: Path) -> None:
    """700 names whose server does not answer, asked for by way of the proxy; a name that is known comes at once."""
    own_tunnel = start_bentpipe(path, Transport(expected_rate="20 Mbit/s", expected_rtt="100 ms"))
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 10.77.3.1\n")
    own_tunnel.gateway.stop()
    files = {"/etc/hosts": own_tunnel.hosts, "/etc/resolv.conf": resolv}
    words: list[str | Path] = [host.binary(), "gateway", "--config", own_tunnel.gateway_config.absolute()]
    own_tunnel.gateway = own_tunnel.path.start("gateway", own_tunnel.path.gateway, words, files)
    own_tunnel.gateway.wait_line("ready")
    eventually(lambda: works(own_tunnel), "the session is back")
    second = second_terminal(own_tunnel, tmp_path)
    asking = [ask(own_tunnel, f"slow-{number}.bentpipe.test") for number in range(700)]
    own_tunnel.path.terminal.run(
        "curl", "-sS", "--fail", "--max-time", "5", "--socks5-hostname", second, "-o", tmp_path / "got",
        f"http://{NAME}/2MB",
    )  # fmt: skip
    for connection in asking:
        connection.close()


def second_terminal(tunnel: Bentpipe, directory: Path) -> str:
    """Pair and start another terminal, with a key of its own; where its proxy listens."""
    config = directory / "second" / "terminal.toml"
    config.parent.mkdir()
    config.write_text('[ingress.socks5]\nlisten = "127.0.0.1:1090"\n[transport]\nmemory = "256 MiB"\n')
    line = enrolment(tunnel.path, tunnel.gateway_config)
    assert run(tunnel.path.terminal, "terminal", "join", "--config", config, said=line).returncode == 0
    words: list[str | Path] = [host.binary(), "terminal", "--config", config]
    tunnel.path.start("second", tunnel.path.terminal, words).wait_line("session: up")
    return "127.0.0.1:1090"


def ask(tunnel: Bentpipe, name: str) -> socket.socket:
    """Ask the terminal's proxy for a connection to a name."""
    connection = connect(tunnel.path.terminal, ("127.0.0.1", 1080))
    connection.sendall(b"\x05\x01\x00")
    assert connection.recv(2) == b"\x05\x00"
    connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + (80).to_bytes(2, "big"))
    return connection
