"""Traces against the clock: how fast a capture of QUIC is decrypted and read, beside tshark, and in how much memory."""

import time
from pathlib import Path

from bentpipe_lab.bench import cost
from bentpipe_lab.bench.quantity import Quantity
from bentpipe_lab.errors import ProgramError
from bentpipe_lab.matrix.ends import captured
from bentpipe_lab.net import host
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.topology import SERVER4, Topology, topology
from bentpipe_lab.stacks import certificates
from bentpipe_lab.stacks.endpoint import PORT, listens

BYTES = 50_000_000
PATIENCE_S = 60.0
POLL_S = 0.02
RUNS = 3
"""The best of so many counts: processor time only ever grows by what else the machine does."""


def traces(directory: Path) -> list[Quantity]:
    """rate and memory of `bentpipe trace` over a download by ngtcp2, decrypted, beside tshark."""
    host.require(("ip", "nsenter", "tcpdump", "tshark", "gtlsserver", "gtlsclient"))
    with topology(directory, web_server=False) as path:
        capture, keys = _download(path, directory.absolute())
    megabytes = capture.stat().st_size / 1e6
    fields = ("quic.packet_number", "quic.stream.offset", "quic.stream.length")
    ours: list[str | Path] = [host.binary(), "trace", capture, "--keys", keys, "--out", directory / "tables"]
    theirs: list[str | Path] = [
        "tshark", "-r", capture, "-o", f"tls.keylog_file:{keys}", "-d", f"udp.port=={PORT},quic", "-T", "fields",
        *(word for field in fields for word in ("-e", field)),
    ]  # fmt: skip
    mine = [cost.of(ours) for _ in range(RUNS)]
    peer = cost.of(theirs)
    fastest = min(each.user_s + each.system_s for each in mine)
    return [
        Quantity(
            "trace with tables, decrypted", megabytes / fastest, "MB/s of a core", "tshark",
            megabytes / (peer.user_s + peer.system_s), least=100,
        ),
        Quantity(
            f"trace memory, {megabytes:.0f} MB", max(each.peak_mib for each in mine), "MiB", "tshark", peer.peak_mib,
            most=200,
        ),
    ]  # fmt: skip


def _download(path: Topology, directory: Path) -> tuple[Path, Path]:
    """Download over plain cables; the capture of it, and its keys."""
    certificates.make(directory, Authority.of(path), ["server4"], [SERVER4])
    (directory / "www").mkdir()
    with (directory / "www" / "file").open("wb") as file:
        file.truncate(BYTES)
    keys = directory / "keys.log"
    for namespace, device in ((path.server, "gnd0"), (path.client, "lan0")):
        # Otherwise the capture has packets that no wire carries.
        namespace.ip("link", "set", device, "gso_max_segs", "1")
    serve: list[str | Path] = [
        "gtlsserver", "-q", "-d", directory / "www", SERVER4, str(PORT), directory / certificates.KEY,
        directory / certificates.CHAIN,
    ]  # fmt: skip
    fetch: list[str | Path] = [
        "env", f"SSLKEYLOGFILE={keys}", "gtlsclient", "-q", "--exit-on-all-streams-close", "--download", directory,
        SERVER4, str(PORT), f"https://{SERVER4}/file",
    ]  # fmt: skip
    server = path.start("gtlsserver", path.server, serve)
    deadline = time.monotonic() + PATIENCE_S
    while not listens(path.server):
        if time.monotonic() > deadline:
            raise ProgramError(f"gtlsserver does not listen{server.tail()}")
        time.sleep(POLL_S)
    with captured(path.client, "lan0", directory, "client"):
        path.client.run(*fetch)
    return directory / "client.pcap", keys
