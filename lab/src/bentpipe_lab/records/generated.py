"""Types of the binary's records, generated from `schemas/` by `make types`; not to be edited."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict


class Drops(TypedDict):
    """Packets dropped, by cause."""

    corruption: int
    fade: int
    loss: int
    management: int
    outage: int
    queue: int
    reconfiguration: int
    switch: int


class Counters(TypedDict):
    """Packets and bytes so far, without cross traffic. At any moment `entered + duplicated = delivered + dropped +
    held`."""

    corrupted: int
    """Packets that were damaged and sent on."""
    delivered: int
    """Packets that came out."""
    delivered_bytes: int
    """Bytes that came out, at the IP level."""
    dropped: Drops
    """Packets that did not come out, by cause."""
    dropped_bytes: int
    """Bytes of all dropped packets, at the IP level."""
    duplicated: int
    """Packets that the link added: second copies."""
    duplicated_bytes: int
    """Bytes of all second copies, at the IP level."""
    entered: int
    """Packets that came in."""
    entered_bytes: int
    """Bytes that came in, at the IP level."""
    marked: int
    """Packets marked "congestion experienced"."""
    reordered: int
    """Packets that were held back so that others overtake them."""


class EchoRecord(TypedDict):
    """The datagrams of a call, each of which the server sends back."""

    echoed: int
    """Of how many the echo has come."""
    longest_ns: NotRequired[int | None]
    """The longest."""
    p50_ns: NotRequired[int | None]
    """How long half of the echoes took at most, from when the application sent the datagram."""
    p95_ns: NotRequired[int | None]
    """And 95 % of them."""
    p99_ns: NotRequired[int | None]
    """And 99 %."""
    sent: int
    """How many were sent."""


QuicVerdictOk = TypedDict('QuicVerdictOk', {'is': Literal["ok"]})
"""All that was requested has arrived."""


QuicVerdictTimedOut = TypedDict('QuicVerdictTimedOut', {'is': Literal["timed_out"]})
"""The plan's time was over first."""


QuicVerdictBroken = TypedDict('QuicVerdictBroken', {'is': Literal["broken"], 'why': str})
"""The connection broke."""


QuicVerdict = QuicVerdictOk | QuicVerdictTimedOut | QuicVerdictBroken
"""What became of a QUIC connection."""


class QuicFlow(TypedDict):
    """The end of a QUIC connection."""

    controller: str
    """Its controller."""
    flow: int
    """Which flow."""
    forward_ip_bytes: int
    """Bytes at the IP level that the gateway sent."""
    lost: int
    """Packets that the gateway declared lost."""
    return_ip_bytes: int
    """Bytes at the IP level that the terminal sent: requests and acknowledgements."""
    sent: int
    """Packets that the gateway sent."""
    verdict: QuicVerdict
    """What became of it."""


TunnelVerdict = Literal["ok", "timed_out", "reset", "wrong_content", "not_begun"]
"""What became of an application's connection, as the application sees it."""


WorkKind = Literal["download", "upload", "call"]
"""Which way most of a flow goes."""


class TunnelFlow(TypedDict):
    """The end of an application's connection."""

    arrived: int
    """What has arrived of it."""
    begun_ns: int
    """When the application connected."""
    bytes: int
    """What was to be carried."""
    done_ns: NotRequired[int | None]
    """And the last."""
    echo: NotRequired[EchoRecord | None]
    """The datagrams of a call."""
    first_byte_ns: NotRequired[int | None]
    """When the first byte of the answer was at the application."""
    flow: int
    """Which of its flows."""
    reached_ns: NotRequired[int | None]
    """When its request was at the server."""
    terminal: int
    """Which terminal."""
    verdict: TunnelVerdict
    """What became of it."""
    work: WorkKind
    """Which way most of it goes."""


FlowRecord = QuicFlow | TunnelFlow
"""The end of a flow."""


@dataclass(frozen=True)
class Line:
    """One line: all runs of one point, or all flows of a kind where they go through the tunnel. Times are of those
    that ended well."""

    axes: Mapping[str, str]
    """What was chosen."""
    median_echo_lost: float | None
    """Of calls: the share of their datagrams whose echo has not come."""
    median_echo_p95_s: float | None
    """Of calls: the 95th percentile of the times to their datagrams' echoes."""
    median_first_byte_s: float | None
    """To its first byte."""
    median_goodput_bit_s: float | None
    """Payload that the first flow received; an unfinished transfer lasts until the end."""
    median_s: float | None
    """Of the last transfer of the first flow, from its beginning to its last byte."""
    median_share: float | None
    """Its share of all that was received."""
    median_wire_per_payload: float | None
    """Bytes at the IP level that its gateway sent for each byte received."""
    n_ok: int
    """Those that ended well: all that was asked for arrived, or the flow had no end."""
    n_total: int
    """All of them."""
    p25_s: float | None
    """A quarter of the times lies below it."""
    p75_s: float | None
    """A quarter of the times lies above it."""
    verdicts: Mapping[str, int]
    """What became of the runs."""


Towards = Literal["forward", "return"]
"""Which direction of a link."""


class LinkRecord(TypedDict):
    """One direction of a link at the end."""

    blacked_out: int
    """Packets lost in outages: `packets.dropped.outage`."""
    direction: Towards
    """Which direction."""
    link: int
    """Which link."""
    packets: Counters
    """What became of its packets."""


class Path(TypedDict):
    """How the gateway sees the path of a session."""

    lost: int
    """Packets declared lost so far."""
    rtt_ns: int
    """Smoothed round-trip time."""
    sent: int
    """Packets sent so far."""
    window: int
    """Congestion window, bytes."""


class QuicSample(TypedDict):
    """The state of a QUIC connection."""

    arrived_udp_bytes: int
    """UDP payload that has arrived at the terminal so far: what a study counts that looks at packets."""
    at_ns: int
    """When."""
    flow: int
    """Which flow."""
    pacing_bit_s: NotRequired[int | None]
    """The gateway's pacing rate, bit/s, where the controller has one."""
    received: int
    """Bytes that have arrived at the terminal's program so far."""
    rtt_ns: int
    """The gateway's smoothed round-trip time."""
    waited_most_ns: NotRequired[int | None]
    """The longest of those times."""
    waited_ns: NotRequired[int | None]
    """Mean time that the packets since the last sample waited in the forward direction's queues."""
    window: int
    """The gateway's congestion window, bytes."""


class TunnelSample(TypedDict):
    """The state of a terminal's session."""

    at_ns: int
    """When."""
    received: int
    """Bytes that its applications have received so far."""
    session: NotRequired[Path | None]
    """The gateway's view of the session, if it has one."""
    terminal: int
    """Whose."""
    uploaded: int
    """Bytes that its applications' servers have received so far, without the requests."""


SampleRecord = QuicSample | TunnelSample
"""The state at a moment."""


class SessionRecord(TypedDict):
    """A terminal's session at the end."""

    session: NotRequired[Path | None]
    """The gateway's view of the last one, if it is still there."""
    sessions: int
    """How many it has had."""
    terminal: int
    """Whose."""
    up_ns: NotRequired[int | None]
    """When the terminal first had one that the gateway had accepted."""


class TransferRecord(TypedDict):
    """One transfer."""

    asked_ns: int
    """When it was requested."""
    begun_ns: int
    """When the connection was begun, if this is the first over it, or else requested."""
    bytes: int
    """What was requested."""
    done_ns: NotRequired[int | None]
    """When its last byte arrived."""
    first_byte_ns: NotRequired[int | None]
    """When its first byte arrived."""
    flow: int
    """Which flow."""
    received: int
    """What arrived."""
    sent_ip_bytes: int
    """Bytes at the IP level that the gateway sent from request to last byte, or to the end of the run."""
    transfer: int
    """Which of its transfers."""


Record = TransferRecord | SampleRecord | FlowRecord | SessionRecord | LinkRecord
"""One line of `records.jsonl`, of whatever kind the nodes are."""


class RunHead(TypedDict):
    """Which run the lines that follow are of."""

    axes: Mapping[str, str]
    """The values that the sweep chose, by the dotted names of their fields."""
    failed: NotRequired[str | None]
    """Why there are no records of it."""
    seed: int
    """Its seed."""


class RunLine(TypedDict):
    """The line of `records.jsonl` before those of one run."""

    run: RunHead
