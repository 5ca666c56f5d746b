"""What happens to QUIC connections under way: `bentpipe trace` reads a Retry, key updates and a changed address.

Both ends are aioquic's and in this process: datagrams go from one to the other in steps of a made-up clock, and into a
capture.
"""

import io
import ipaddress
import itertools
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import QuicProtocolVersion, encode_quic_retry, pull_quic_header

from bentpipe_lab.net.authority import Authority
from bentpipe_lab.stacks import certificates
from emulated import bentpipe

STEP_S = 0.03
SERVER_PORT, CLIENT_PORT, MOVED_PORT = 443, 50_000, 50_001
ADDRESSES = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
"""The server's and the client's, by IP version."""
RAW_IP = 101
"""The link type of captures that begin with an IP header."""
TOKEN = b"a token"
PIECE = 40_000


@dataclass
class Conversation:
    """A client, a server, what passed between them, and the time."""

    client: QuicConnection
    family: int
    version: int
    chain: Path
    key: Path
    now: float = 1_000.0
    server: QuicConnection | None = None
    client_port: int = CLIENT_PORT
    packets: list[tuple[float, bytes]] = field(default_factory=list)
    retried: bool = False
    came: dict[int, int] = field(default_factory=dict)
    """Bytes that came at the client, by stream."""

    def talk(self, steps: int = 40) -> None:
        """Let datagrams go to and fro until neither has any."""
        for _ in range(steps):
            self.now += STEP_S
            moved = self._from_client() + self._from_server()
            for end in filter(None, (self.client, self.server)):
                due = end.get_timer()
                if due is not None and due <= self.now:
                    end.handle_timer(self.now)
            if not moved and self.server is not None:
                return

    def _from_client(self) -> int:
        datagrams = self.client.datagrams_to_send(self.now)
        for data, _ in datagrams:
            self._capture(data, from_client=True)
            if self.server is None and not self._answered_by_retry(data):
                self.server = self._new_server(data)
            if self.server is not None:
                self.server.receive_datagram(data, ("client", self.client_port), self.now)
        return len(datagrams)

    def _from_server(self) -> int:
        if self.server is None:
            return 0
        datagrams = self.server.datagrams_to_send(self.now)
        for data, _ in datagrams:
            self._capture(data, from_client=False)
            self.client.receive_datagram(data, ("server", SERVER_PORT), self.now)
        while (event := self.client.next_event()) is not None:
            if isinstance(event, StreamDataReceived):
                self.came[event.stream_id] = self.came.get(event.stream_id, 0) + len(event.data)
        return len(datagrams)

    def _answered_by_retry(self, data: bytes) -> bool:
        if self.retried:
            return False
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        self.first_destination = header.destination_cid
        retry = encode_quic_retry(
            version=self.version, source_cid=b"retry-id", destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid, retry_token=TOKEN,
        )  # fmt: skip
        self.retried = True
        self._capture(retry, from_client=False)
        self.client.receive_datagram(retry, ("server", SERVER_PORT), self.now)
        return True

    def _new_server(self, data: bytes) -> QuicConnection:
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        assert header.token == TOKEN
        configuration = QuicConfiguration(
            is_client=False, alpn_protocols=["hq-interop"], supported_versions=[self.version]
        )
        configuration.load_cert_chain(self.chain, self.key)
        return QuicConnection(
            configuration=configuration, original_destination_connection_id=self.first_destination,
            retry_source_connection_id=b"retry-id",
        )  # fmt: skip

    def _capture(self, data: bytes, *, from_client: bool) -> None:
        server, client = (ipaddress.ip_address(each).packed for each in ADDRESSES[self.family])
        ports = (self.client_port, SERVER_PORT) if from_client else (SERVER_PORT, self.client_port)
        ends = (client, server) if from_client else (server, client)
        udp = struct.pack("!HHHH", *ports, 8 + len(data), 0) + data
        if self.family == 4:
            head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, *ends)
        else:
            head = struct.pack("!IHBB16s16s", 0x6000_0000, len(udp), 17, 64, *ends)
        self.packets.append((self.now, head + udp))

    def pcap(self) -> bytes:
        """The capture, with times in nanoseconds."""
        file = struct.pack("<IHHiIII", 0xA1B2_3C4D, 2, 4, 0, 0, 1 << 16, RAW_IP)
        for at, packet in self.packets:
            file += struct.pack("<IIII", int(at), int(at % 1 * 1e9), len(packet), len(packet)) + packet
        return file


@pytest.fixture(
    scope="module",
    params=[(4, QuicProtocolVersion.VERSION_1), (6, QuicProtocolVersion.VERSION_2)],
    ids=["version 1 over IPv4", "version 2 over IPv6"],
)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A connection with a Retry, three answers with a key update after each, and another address for the last."""
    family, version = request.param
    where = tmp_path_factory.mktemp("events")
    certificates.make(where, Authority.at(where / "authority"), ["server"], ["127.0.0.1"])
    secrets = io.StringIO()
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["hq-interop"], server_name="server", secrets_log_file=secrets,
        supported_versions=[version], original_version=version,
    )  # fmt: skip
    configuration.load_verify_locations(str(where / certificates.AUTHORITY))
    client = QuicConnection(configuration=configuration)
    talk = Conversation(client, family, version, where / certificates.CHAIN, where / certificates.KEY)
    client.connect(("server", SERVER_PORT), now=talk.now)
    talk.talk()
    assert talk.server is not None
    for number in range(3):
        if number == 2:
            talk.client_port = MOVED_PORT
        stream = client.get_next_available_stream_id()
        client.send_stream_data(stream, b"GET\r\n", end_stream=True)
        talk.talk(2)
        talk.server.send_stream_data(stream, bytes(PIECE), end_stream=True)
        talk.talk(200)
        assert talk.came[stream] == PIECE
        client.request_key_update()
    client.close()
    talk.talk(3)
    (where / "talk.pcap").write_bytes(talk.pcap())
    (where / "keys.log").write_text(secrets.getvalue())
    done = bentpipe("trace", where / "talk.pcap", "--keys", where / "keys.log", "--out", where / "out", "--json")
    assert done.returncode == 0, done.stderr
    (connection,) = json.loads(done.stdout)["connections"]
    return {"tables": where / "out" / "talk.pcap", "asked": f"{version:08x}", "family": family, **connection}


def test_every_packet_is_read_across_retry_key_updates_and_migration(traced: dict[str, Any]) -> None:
    assert traced["version"] == traced["asked"]
    assert traced["undecrypted"] == {}
    assert traced["unknown_frames"] == 0
    assert traced["server_sent"]["stream_bytes"] == 3 * PIECE
    assert traced["client_sent"]["repeated_bytes"] == 0


def test_a_retry_is_told_and_has_a_row(traced: dict[str, Any]) -> None:
    assert traced["retried"]
    packets = pl.read_parquet(traced["tables"] / "packets.parquet")
    kinds = packets["kind"].to_list()
    assert kinds[:2] == ["initial", "retry"]
    assert not packets.filter(pl.col("kind") == "retry")["from_client"][0]
    # The client's second Initial, by keys of the Retry's connection ID.
    assert packets["kind"][2] == "initial"
    assert packets["error"][2] is None


def test_key_updates_of_both_sides_are_followed(traced: dict[str, Any]) -> None:
    assert traced["client_sent"]["key_updates"] == 3
    assert traced["server_sent"]["key_updates"] >= 2
    phases = pl.read_parquet(traced["tables"] / "packets.parquet").filter(
        pl.col("from_client") & (pl.col("kind") == "1RTT")
    )["key_phase"]
    changes = [now for before, now in itertools.pairwise(phases) if before != now]
    assert changes == [True, False, True]


def test_a_change_of_the_clients_address_keeps_the_connection(traced: dict[str, Any]) -> None:
    assert traced["migrations"] == 1
    address = ADDRESSES[traced["family"]][1]
    assert traced["client"] == (f"{address}:{CLIENT_PORT}" if traced["family"] == 4 else f"[{address}]:{CLIENT_PORT}")
    frames = pl.read_parquet(traced["tables"] / "packets.parquet")["frames"].str.split(",").explode().to_list()
    assert {"path_challenge", "path_response"} <= set(frames)
