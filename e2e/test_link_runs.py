"""Runs beyond the ordinary: large packets, many links, signals, and bytes that arrive as they were sent."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import read_certificate
from emulated import GATEWAY, emulated

GATEWAY6 = "fd98::2"
IPV6 = ["--terminal-address", "fd98::1/64", "--gateway-address", f"{GATEWAY6}/64"]
PATIENCE_S = 60.0
LINKS = 64
LATENCY = Path("/dev/cpu_dma_latency")
MIB = 1 << 20


@pytest.mark.parametrize("mtu", [1280, 1500, 9000])
@pytest.mark.parametrize("address", [GATEWAY, GATEWAY6])
def test_a_transfer_arrives_as_it_was_sent_at_any_mtu(tmp_path: Path, mtu: int, address: str) -> None:
    """The kernel hands over TCP in large pieces; what is cut from them has to be what it would have sent."""
    content = incompressible("mtu", 4 * MIB)
    with emulated(tmp_path, options=[*IPV6, "--mtu", str(mtu)]) as link:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = link.gateway.socket(family)
        listener.bind((address, 0))
        listener.listen()
        client = link.terminal.socket(family)
        client.settimeout(PATIENCE_S)
        client.connect(listener.getsockname()[:2])
        server, _ = listener.accept()
        server.settimeout(PATIENCE_S)
        for sender, receiver in ((client, server), (server, client)):
            sending = threading.Thread(target=sender.sendall, args=(content,))
            sending.start()
            assert _receive(receiver, len(content)) == content
            sending.join()
        for end in (client, server, listener):
            end.close()
        certificate = link.end()
    for direction in certificate.fields["links"][0]["directions"]:
        assert direction["oversized"] == 0
        assert direction["unwritten"] == 0
        assert direction["entered_bytes"] <= direction["entered"] * mtu
        assert direction["entered_bytes"] > len(content), "no packet is missing from the count"


def _receive(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = connection.recv(MIB)
        assert part
        received += part
    return bytes(received)


@pytest.mark.parametrize("address", [GATEWAY, GATEWAY6])
def test_udp_that_the_kernel_may_cut_arrives_datagram_by_datagram(tmp_path: Path, address: str) -> None:
    with emulated(tmp_path, options=IPV6) as link:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        receiver = link.gateway.socket(family, socket.SOCK_DGRAM)
        receiver.bind((address, 0))
        receiver.settimeout(PATIENCE_S)
        sender = link.terminal.socket(family, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT, udp(7)
        content = incompressible("udp", 9_500)
        sender.sendto(content, receiver.getsockname()[:2])
        datagrams = [receiver.recv(65_536) for _ in range(10)]
        assert [len(datagram) for datagram in datagrams] == [1000] * 9 + [500]
        assert b"".join(datagrams) == content


def test_a_large_packet_passes_and_one_larger_does_not(tmp_path: Path) -> None:
    with emulated(tmp_path, options=["--mtu", "9000"]) as link:
        ping = ["ping", "-n", "-c", "1", "-W", "5", "-M", "do"]
        assert " 0% packet loss" in link.terminal.run(*ping, "-s", str(9000 - 28), GATEWAY)
        done = subprocess.run(
            link.terminal.command([*ping, "-s", str(9001 - 28), GATEWAY]), capture_output=True, text=True, check=False
        )
        assert "message too long" in (done.stdout + done.stderr).lower()


def test_64_links_in_one_process(tmp_path: Path) -> None:
    """They are ready at once and cost memory for their counts and queues, not for buffers of each."""
    with emulated(tmp_path / "one") as one:
        one_bytes = one.emulator.resident_bytes()
    with host.owned_run() as run:
        terminal, gateway = Namespace(f"{run}-terminal"), Namespace(f"{run}-gateway")
        argv: list[str | Path] = [host.binary(), "emulate", tmp_path / "one/scenario.toml"]
        for number in range(LINKS):
            ends = f"{terminal.name}/s{number},10.97.{number}.1/24={gateway.name}/s{number},10.97.{number}.2/24"
            argv += ["--link", ends]
        terminal.create()
        gateway.create()
        many = Process("many", argv, tmp_path)
        try:
            many.wait_line("ready")
            for number in (0, LINKS - 1):
                assert " 0% packet loss" in terminal.run("ping", "-c", "1", "-W", "5", f"10.97.{number}.2")
            assert many.resident_bytes() < one_bytes + LINKS * MIB
        finally:
            code = many.stop()
            terminal.delete()
            gateway.delete()
        assert code == 0


def test_no_processor_sleeps_while_packets_flow(tmp_path: Path) -> None:
    """The kernel's word for it, where it grants it; the certificate says whether it did."""
    with emulated(tmp_path) as link:
        argv = link.terminal.command(["ping", "-n", "-i", "0.1", GATEWAY])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as ping:
            assert ping.stdout is not None
            while "time=" not in ping.stdout.readline():
                assert ping.poll() is None
            try:
                with LATENCY.open("rb") as device:
                    latency = int.from_bytes(device.read(4), sys.byteorder, signed=True)
            except OSError:
                latency = None
            ping.terminate()
        machine = link.end().fields["machine"]
    if machine["processors_awake"]:
        assert latency == 0
    else:
        assert any(str(LATENCY) in refused for refused in machine["refused"])


PLANNED = """
name = "planned"
[forward]
rate = "100 Mbit/s"
delay = "15 ms"
queue = "1000 packets"
change = [{ at = "500 ms", delay = "50 ms", rate = "10 Mbit/s" }, { at = "1 h", outage = true }]
[return]
rate = "100 Mbit/s"
delay = "15 ms"
queue = "1000 packets"
[[switch]]
at = "1 s"
forward = { rate = "20 Mbit/s", delay = "5 ms", queue = "100 kB" }
return = { rate = "20 Mbit/s", delay = "5 ms", queue = "100 kB" }
"""


def test_planned_changes_are_told_with_their_moments_as_the_run_comes_to_them(tmp_path: Path) -> None:
    with emulated(tmp_path, PLANNED) as link:
        began = time.monotonic()
        while len(link.show()["changes"]) < 2:
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.05)
        link.set("delay=7 ms")
        assert "changed at 1.000 s: satellite: switch (planned)" in link.link("show").stdout
        told = link.end().fields["changes"]
    assert [(change["what"], change["direction"], change["planned"]) for change in told] == [
        ("delay=50 ms, rate=10 Mbit/s", "forward", True),
        ("switch", "both", True),
        ("delay=7 ms", "both", False),
    ]
    assert [change["at_s"] for change in told[:2]] == [0.5, 1.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_its_certificate(tmp_path: Path, number: signal.Signals) -> None:
    with emulated(tmp_path) as link:
        assert len(link.ping()) == 8
        link.emulator.signal(number)
        assert link.emulator.wait() == 0
        assert "certificate: test" in link.emulator.out.read_text()
        certificate = read_certificate(tmp_path)
        assert certificate is not None
        assert certificate.fields["links"][0]["directions"][0]["delivered"] == 8
        assert "sat0" not in link.terminal.ip("link", "show")


def test_a_device_taken_away_ends_the_run_and_names_it(tmp_path: Path) -> None:
    with emulated(tmp_path) as link:
        link.terminal.ip("link", "delete", "sat0")
        assert link.emulator.wait() == 1
        said = link.emulator.log.read_text()
        assert "sat0" in said
        assert link.terminal.name in said
        assert "vanished" in said
        assert not Path(link.control).exists()
