"""The secrets of the tunnel's sessions, on request: a capture can then be read."""

import json
from pathlib import Path

import pytest

from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import eventually
from emulated import bentpipe

SIZE = 2_000_000


def test_a_session_is_read_with_its_secrets(path: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, capture = tmp_path / "keys.log", tmp_path / "session.pcap"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    words: list[str | Path] = ["tcpdump", "-i", "sat0", "-B", "16384", "-w", capture, "udp", "port", str(GATEWAY_PORT)]
    listening = path.start("capture", path.terminal, words)
    eventually(lambda: "listening on" in listening.log.read_text(), "tcpdump listens")
    tunnel = start_bentpipe(path)
    assert "SSLKEYLOGFILE" in tunnel.terminal.log.read_text()
    assert curl.download(path, "2MB").verdict is Verdict.OK
    listening.stop()
    done = bentpipe("trace", capture, "--keys", keys, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    connections = json.loads(done.stdout)["connections"]
    # The first is the pairing's.
    session = max(connections, key=lambda each: each["server_sent"]["stream_bytes"])
    assert session["server_sent"]["stream_bytes"] > SIZE // 2, "tcpdump may miss packets on a busy machine"
    assert session["undecrypted"] == {}
