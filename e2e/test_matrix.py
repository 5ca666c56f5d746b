"""Cells of the matrix with toy implementations: whatever one does wrong is a verdict, and nothing of it is left."""

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from bentpipe_lab.matrix import cell, ends
from bentpipe_lab.net import netns
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import LAN, Topology, topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import cache, endpoint, manifest
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings

FILE = "2MB"
PATIENCE_S = 60.0
FILLS = "while :; do i=$((i+1)); head -c 60000000 /dev/zero > /logs/$i; done\n"
TAKES = "import time; x = bytearray(400 << 20); time.sleep(600)"
SENDS = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\nwhile True: s.sendto(bytes(1200), ('server', 443))"
LISTEN = "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 443)); time.sleep(600)"
MANIFEST = """\
name = "{name}"
stack = "toy"
version = "1"
licence = "MIT"
language = "sh"
from = "here"
roles = ["client", "server"]
client = ["h3"]
server = ["h3"]
knobs = ["MAX_DATA"]
starts_in_s = 0.1
"""
NGTCP2 = """\
if [ "$ROLE" = server ]; then exec /usr/sbin/gtlsserver -q -d /www '*' 443 /certs/priv.key /certs/cert.pem; fi
exec gtlsclient -q --exit-on-all-streams-close --download=/downloads server 443 $REQUESTS
"""

LOSSY = """\
name = "lossy"
[forward]
rate = "20 Mbit/s"
delay = "10 ms"
loss = "1 %"
queue = "100 kB"
[return]
rate = "20 Mbit/s"
delay = "10 ms"
queue = "100 kB"
"""

PODMAN = """\
#!/bin/sh
case $1 in
    create) echo container ;;
    export) exec cat {image} ;;
    inspect) printf 'GREETING=of the image\\nPATH=/bin\\n\\n' ;;
esac
"""
IMAGE = """\
#!/bin/sh
/setup.sh && /wait-for-it.sh sim:57832 -s -t 30
test ! -e /implementations
echo "$GREETING: $ROLE $TESTCASE $REQUESTS"
cp /www/2MB /downloads/
"""

Toy = Callable[[str, str], str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """A path of plain cables."""
    with topology(tmp_path_factory.mktemp("matrix")) as built:
        yield built


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """Makes an implementation of a shell script, and says its name."""
    where = tmp_path / "implementations"
    where.mkdir()
    monkeypatch.setattr(manifest, "IMPLEMENTATIONS", where)
    monkeypatch.setattr(endpoint, "IMPLEMENTATIONS", where)
    monkeypatch.setenv("BENTPIPE_STACKS", str(tmp_path / "stacks"))

    def made(name: str, script: str) -> str:
        (where / name).mkdir()
        (where / name / "manifest.toml").write_text(MANIFEST.format(name=name))
        for file, text in (("run_endpoint", script), ("install", "echo 1\n")):
            (where / name / file).write_text(f"#!/bin/sh\n{text}")
            (where / name / file).chmod(0o755)
        manifest.all_manifests.cache_clear()
        assert cache.install(cache.root(), manifest.manifest(name)).version == "1"
        return name

    yield made
    manifest.all_manifests.cache_clear()


def fetched(path: Topology, client: str, server: str, limit_s: float = 60.0) -> Outcome:
    outcome = cell.run(path, cell.Request(client, server, FILE, limit_s))
    for namespace in (path.client, path.server):
        assert not left_in(namespace)
    return outcome


def left_in(namespace: Namespace) -> list[int]:
    return [pid for pid in namespace.pids() if pid != os.getpid() and "nginx" not in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "nginx"  # it has ended meanwhile


def test_a_download_by_quic_is_measured_from_its_packets(path: Topology, toy: Toy) -> None:
    name = toy("ngtcp2", NGTCP2)
    outcome = fetched(path, name, name)
    assert outcome.verdict is Verdict.OK, outcome.detail
    assert json.loads(Path(outcome.files["facts.json"]).read_text())["spoken protocol"] == "h3"
    assert outcome.bytes_received >= 2_000_000
    handshake, first, last = (outcome.metrics[f"{name}_s"] for name in ("handshake", "first_byte", "last_byte"))
    assert 0 < handshake < first < last
    assert outcome.seconds == last
    assert len([name for name in outcome.metrics if name.startswith("goodput_")]) == 3
    assert {"client-packets.parquet", "server-streams.parquet", "client-trace.json"} <= set(outcome.files)
    packets = pl.read_parquet(outcome.files["client-packets.parquet"])
    assert (packets["datagram"] <= 1500 - 28).all(), "larger than any wire carries: a device segments"


def test_a_proxy_that_splits_quic_may_lie_between(tmp_path: Path, toy: Toy) -> None:
    name = toy("ngtcp2", NGTCP2)
    system = SYSTEMS["quic-pep"]
    with topology(tmp_path) as path:
        system.start(path, Settings())
        system.show_in_path(path)
        # The server is started anew for each run; the proxies are not.
        outcomes = [fetched(path, name, name) for _ in range(2)]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.OK] * 2, outcomes
    near, far = (json.loads(Path(outcomes[1].files[f"{side}-trace.json"]).read_text()) for side in ("client", "server"))
    assert near["connections"][0]["client"].startswith(LAN.far4)
    assert {each["client"].split(":")[0] for each in far["connections"]} == {system.address_at_server()}


def test_what_the_emulator_did_with_its_packets_is_kept_of_a_run(tmp_path: Path, toy: Toy) -> None:
    scenario = tmp_path / "lossy.toml"
    scenario.write_text(LOSSY)
    name = toy("ngtcp2", NGTCP2)
    with topology(tmp_path / "path", scenario, records=True) as path:
        first = fetched(path, name, name)
        outcome = fetched(path, name, name)
    assert outcome.verdict is Verdict.OK, outcome.detail
    packets = pl.read_parquet(outcome.files["link.parquet"])
    forward = packets.filter(pl.col("direction") == "forward")
    assert forward.filter(pl.col("fate") == "delivered")["length"].sum() > 2_000_000
    assert forward.filter(pl.col("fate") == "loss").height > 0
    assert 0 < max(forward["queue_bytes"].to_list()) <= 100_000
    # Of this run alone, to its end: what the server sent came past the emulator within the path's delay.
    sent = pl.read_parquet(outcome.files["server-streams.parquet"]).filter(~pl.col("from_client"))["time_ns"]
    assert forward.filter(pl.col("length") > 1000).height >= sent.n_unique()
    before = pl.read_parquet(first.files["link.parquet"])["time_ns"].to_list()
    assert min(packets["time_ns"].to_list()) > max(before)


def test_the_file_by_another_way_than_quic_is_no_success(path: Topology, toy: Toy) -> None:
    server = toy("listens", f'exec python3 -c "{LISTEN}"\n')
    client = toy("copies", f"cp /www/{FILE} /downloads/\n")
    outcome = fetched(path, client, server)
    assert outcome.verdict is Verdict.FELL_BACK
    assert "not by QUIC" in outcome.detail


def test_a_client_that_lingers_is_not_waited_for(path: Topology, toy: Toy) -> None:
    name = toy("ngtcp2", NGTCP2)
    lingers = toy("lingers", NGTCP2.replace("exec gtlsclient", "gtlsclient") + "sleep 600\n")
    assert fetched(path, lingers, name).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("script", "verdict", "said"),
    [
        ("sleep 600\n", Verdict.TIMED_OUT, "not done after"),
        ("echo it is broken >&2; exit 3\n", Verdict.FAILED, "ended with 3: it is broken"),
        (f"head -c 1000 /dev/zero > /downloads/{FILE}\n", Verdict.WRONG_CONTENT, "1000 bytes that are not the file's"),
        ("echo no such knob >&2; exit 127\n", Verdict.UNSUPPORTED, "no such knob"),
        ("exec yes it says the same thing for ever\n", Verdict.FAILED, "it says the same thing"),
        ("setsid sleep 600 & setsid sleep 601 & exit 0\n", Verdict.FAILED, "no file"),
        ("trap '' TERM INT; while :; do sleep 1; done\n", Verdict.TIMED_OUT, "not done after"),
        (FILLS, Verdict.FAILED, "the client wrote "),
        (f'exec python3 -c "{TAKES}"\n', Verdict.FAILED, "MiB of memory, of 256"),
        (f'exec python3 -c "{SENDS}"\n', Verdict.FAILED, "more packets than a capture of 16 MiB holds"),
    ],
    ids=["hangs", "dies", "wrong file", "unsupported", "talks", "leaves some", "ignores signals", "fills the disk",
         "takes memory", "sends"],
)  # fmt: skip
def test_a_clients_misbehaviour_is_a_verdict(
    path: Topology, toy: Toy, monkeypatch: pytest.MonkeyPatch, script: str, verdict: Verdict, said: str
) -> None:
    monkeypatch.setattr(endpoint, "MOST_MEMORY", 256 << 20)
    monkeypatch.setattr(ends, "MOST_CAPTURED", 16 << 20)
    server = toy("listens", f'exec python3 -c "{LISTEN}"\n')
    outcome = fetched(
        path,
        toy("misbehaves", script),
        server,
        limit_s=3.0 if verdict is Verdict.TIMED_OUT else 60.0,
    )
    assert outcome.verdict is verdict, outcome.detail
    assert said in outcome.detail
    assert outcome.seconds is None


@pytest.mark.parametrize(
    "script",
    ["exit 5\n", f'timeout 1 python3 -c "{LISTEN}"; exit 6\n'],
    ids=["at once", "later"],
)
def test_a_server_that_dies_is_told_with_its_exit_code(path: Topology, toy: Toy, script: str) -> None:
    outcome = fetched(path, toy("waits", "sleep 600\n"), toy("dies", script))
    assert outcome.verdict is Verdict.SERVER_DIED
    assert f"ended with {script.split('exit ')[1].strip()}" in outcome.detail


@pytest.mark.parametrize(
    ("script", "verdict", "said"),
    [
        ("sleep 600\n", Verdict.SERVER_DIED, "the server did not listen within 3 s"),
        ("exec yes it says the same thing for ever\n", Verdict.SERVER_DIED, "it says the same thing"),
        (FILLS, Verdict.FAILED, "the server wrote "),
        (f'{FILLS.strip()} & exec python3 -c "{LISTEN}"\n', Verdict.FAILED, "the server wrote "),
        (f'setsid sleep 600 & exec python3 -c "{LISTEN}"\n', Verdict.TIMED_OUT, "not done after"),
        (f"trap '' TERM INT; python3 -c \"{LISTEN}\"; sleep 600\n", Verdict.TIMED_OUT, "not done after"),
    ],
    ids=["never listens", "talks", "fills the disk", "fills it later", "leaves some", "ignores signals"],
)
def test_a_servers_misbehaviour_is_a_verdict(
    path: Topology, toy: Toy, monkeypatch: pytest.MonkeyPatch, script: str, verdict: Verdict, said: str
) -> None:
    monkeypatch.setattr(ends, "READY_S", 3.0 if "did not listen" in said else PATIENCE_S)
    outcome = fetched(path, toy("waits", "sleep 600\n"), toy("misbehaves", script), limit_s=5.0)
    assert outcome.verdict is verdict, outcome.detail
    assert said in outcome.detail
    assert outcome.seconds is None


def test_keys_of_another_run_are_told_and_the_file_counts(path: Topology, toy: Toy) -> None:
    log = f"echo CLIENT_TRAFFIC_SECRET_0 {'ab' * 32} {'cd' * 32} > /logs/keys.log; export SSLKEYLOGFILE=/tmp/keys\n"
    name = toy("another", log + NGTCP2)
    outcome = fetched(path, name, name)
    assert outcome.verdict is Verdict.OK, outcome.detail
    facts = json.loads(Path(outcome.files["facts.json"]).read_text())
    assert "the key log has no secrets of this connection" in facts["not decrypted"]
    # Without keys nothing is known of the streams: the run has no time, and no goodput that would be wrong.
    assert outcome.seconds is None
    assert not [name for name in outcome.metrics if name.startswith("goodput")]


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("harm", ["truncated", "damaged", "killed"])
def test_a_run_whose_capture_is_damaged_is_no_result(
    path: Topology, toy: Toy, monkeypatch: pytest.MonkeyPatch, side: str, harm: str
) -> None:
    capture = ends.captured

    @contextmanager
    def harmed(where: Namespace, device: str, directory: Path, whose: str) -> Iterator[Process]:
        with capture(where, device, directory, whose) as process:
            if whose == side and harm == "killed":
                process.kill()
            yield process
        file = directory / f"{whose}.pcap"
        if whose == side and harm != "killed":
            content = file.read_bytes()
            half = len(content) // 2
            file.write_bytes(content[:half] if harm == "truncated" else content[:half] + b"\xff" * half)

    monkeypatch.setattr(ends, "captured", harmed)
    name = toy("ngtcp2", NGTCP2)
    outcome = fetched(path, name, name)
    assert outcome.verdict is Verdict.CAPTURE_DAMAGED, outcome.detail
    assert (f"tcpdump-{side} ended with -9" if harm == "killed" else f"the {side}'s capture: ") in outcome.detail
    assert outcome.seconds is None
    assert set(outcome.metrics) <= {"packets_missed"}


def test_an_endpoint_has_fixed_paths_and_sees_nothing_of_the_other(path: Topology, toy: Toy) -> None:
    server = toy("listens", f'echo mine > /tmp/mine; exec python3 -c "{LISTEN}"\n')
    look = (
        "set -e; ls /certs/ca.pem /www/2MB; getent hosts server; test ! -e /tmp/mine; test ! -e /tmp/pytest-of-root;"
        " test $(ls -d /proc/[0-9]* | wc -l) -lt 9; echo all well; exit 4"
    )
    outcome = fetched(path, toy("looks", look + "\n"), server)
    assert "ended with 4" in outcome.detail
    assert "all well" in outcome.detail
    assert not Path("/www").exists()
    assert "server" not in Path("/etc/hosts").read_text()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Something that says it is podman, and has an image of a shell and a copying client."""
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as tar:
        for program in ("/bin/sh", "/bin/cp"):
            said = netns.checked(["ldd", program])
            libraries = {word for word in said.split() if word.startswith("/")}
            for file in (program, *libraries):
                tar.add(Path(file).resolve(), file.lstrip("/"))
        (tmp_path / "run_endpoint.sh").write_text(IMAGE)
        (tmp_path / "run_endpoint.sh").chmod(0o755)
        tar.add(tmp_path / "run_endpoint.sh", "run_endpoint.sh")
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text(PODMAN.format(image=image))
    podman.chmod(0o755)
    (tmp_path / "images.toml").write_text('[copier]\nimage = "example/copier@sha256:12"\nclient = ["h3"]\n')
    monkeypatch.setenv("PATH", f"{podman.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("BENTPIPE_IMAGES", str(tmp_path / "images.toml"))
    monkeypatch.setenv("BENTPIPE_STACKS", str(tmp_path / "stacks"))
    manifest.all_manifests.cache_clear()
    yield podman
    manifest.all_manifests.cache_clear()


def test_an_image_made_for_the_interop_runner_runs_without_its_engine(path: Topology, engine: Path) -> None:
    for name in ("copier", "ngtcp2"):
        state = cache.install(cache.root(), manifest.manifest(name))
        assert state.version, state.why
    engine.unlink()
    outcome = fetched(path, "copier", "ngtcp2")
    assert outcome.verdict is Verdict.FELL_BACK, outcome.detail
    assert Path(outcome.files["client.log"]).read_text() == "of the image: client http3 https://server:443/2MB"


def test_an_image_that_cannot_be_had_is_not_installed(engine: Path) -> None:
    engine.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    state = cache.install(cache.root(), manifest.manifest("copier"))
    assert state.version is None
    assert "cannot pull example/copier@sha256:12" in state.why


def test_what_could_not_be_installed_is_a_verdict(path: Topology, toy: Toy) -> None:
    server = toy("listens", "exit 1\n")
    client = toy("absent", "exit 1\n")
    script = manifest.manifest(client).directory / "install"
    script.write_text("#!/bin/sh\necho it needs a compiler >&2\nexit 127\n")
    state = cache.install(cache.root(), manifest.manifest(client))
    assert state.version is None
    outcome = cell.run(path, cell.Request(client, server, FILE, 5))
    assert outcome.verdict is Verdict.NOT_INSTALLED
    assert "it needs a compiler" in outcome.detail
