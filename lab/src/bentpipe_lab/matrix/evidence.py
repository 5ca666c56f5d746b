"""What the packets and the logs of a run say: its verdict, its figures, and the files that are kept of it."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bentpipe_lab.matrix import link_records
from bentpipe_lab.net import host
from bentpipe_lab.net.link import Link
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict

TRACE_S = 120.0
"""How long reading a capture may take."""
SIDES = ("client", "server")
TABLES = (("client", "packets.parquet"), ("client", "streams.parquet"), ("server", "streams.parquet"))
"""Tables of traces that are kept of each run: what the client saw, and what the server sent."""
FACTS = "facts.json"
"""What is known of a run that is no number: protocols, exit codes, what could not be decrypted."""


class Part(Protocol):
    """An end that has ended, wherever it ran."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None when it had to be ended."""

    @property
    def key_log(self) -> Path:
        """The TLS secrets that it wrote, if it wrote any."""

    def said(self, lines: int = 8) -> str:
        """The last lines of its output."""


def outcome(
    link: Link | None, verdict: Verdict, detail: str, protocol: str, parts: Mapping[str, Part], directory: Path
) -> Outcome:
    """The verdict and what was measured: times where the client is, what was repeated where the server is."""
    keys = [part.key_log for part in parts.values() if _has_secrets(part.key_log)]
    traces = {side: _trace(directory / f"{side}.pcap", keys, directory) for side in SIDES}
    seen, sent = (_largest_connection(traces[side]) for side in SIDES)
    missed = [_missed(directory / f"tcpdump-{side}.log") for side in SIDES]
    metrics: dict[str, float | None] = {"packets_missed": float(sum(missed))}
    facts: dict[str, Any] = {"asked protocol": protocol}
    facts |= {f"{role}'s exit code": part.exit_code for role, part in parts.items()}
    unread = {f"the {side}'s capture": why for side in SIDES if (why := _unread(traces[side]))}
    facts |= unread
    received, seconds = 0, None
    if verdict is Verdict.OK and unread:
        verdict, detail = Verdict.CAPTURE_DAMAGED, "; ".join(f"{whose}: {why}" for whose, why in unread.items())
    if verdict is Verdict.CAPTURE_DAMAGED:
        pass  # a part of the packets says nothing of the whole
    elif seen is not None:
        received = seen["server_sent"]["stream_bytes"]
        spoken = seen["application_protocol"]
        facts |= {"spoken protocol": spoken, "not decrypted": seen["undecrypted"]}
        metrics |= _seen_by_the_client(seen, None if link is None else link.forward.rate_bit_s)
        if sent is not None:
            metrics |= _sent_by_the_server(sent)
        if verdict is Verdict.OK and spoken not in (None, protocol):
            verdict, detail = Verdict.FELL_BACK, f"{spoken} was spoken where {protocol} was asked"
        seconds = seen["last_byte_s"] if verdict is Verdict.OK else None
    elif verdict is Verdict.OK:
        verdict, detail = Verdict.FELL_BACK, "the file came, but not by QUIC: its capture has no connection"
    elif not detail.startswith("the server"):
        detail = f"no QUIC packet of the client was seen; {detail}"
    figures = {name: value for name, value in metrics.items() if value is not None}
    return Outcome(verdict, seconds, received, detail, metrics=figures, files=_kept(directory, traces, parts, facts))


def _seen_by_the_client(connection: Mapping[str, Any], rate_bit_s: float | None) -> dict[str, float | None]:
    goodput, came = connection["goodput"], connection["server_sent"]
    whole = goodput["whole_bit_s"]
    return {
        "handshake_s": connection["handshake_s"],
        "first_byte_s": connection["first_byte_s"],
        "last_byte_s": connection["last_byte_s"],
        "goodput_whole_bit_s": whole,
        "goodput_server_packets_bit_s": goodput["server_packets_bit_s"],
        "goodput_request_bit_s": goodput["request_bit_s"],
        "efficiency": whole / rate_bit_s if rate_bit_s and whole else None,
        "packets_per_ack": connection["client_sent"]["packets_per_ack"],
        "blocked_frames": float(came["blocked"]),
        "last_five_percent_s": came["last_five_percent_s"],
        "longest_pause_s": (came["longest_pause"] or {}).get("for_s"),
    }


def _sent_by_the_server(connection: Mapping[str, Any]) -> dict[str, float | None]:
    sent = connection["server_sent"]
    rtt = sent["rtt_ms"]
    return {
        "repeated_bytes": float(sent["repeated_bytes"]),
        "spurious_bytes": float(sent["spurious_bytes"]),
        "least_rtt_s": rtt["least"] / 1e3 if rtt else None,
        "median_rtt_s": rtt["median"] / 1e3 if rtt else None,
    }


def _kept(
    directory: Path, traces: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Part], facts: Mapping[str, Any]
) -> dict[str, str]:
    """Files by the names that they are kept under."""
    texts = {f"{side}-trace.json": json.dumps(trace) for side, trace in traces.items()}
    texts |= {f"{role}.log": part.said(200) for role, part in parts.items()}
    texts[FACTS] = json.dumps(facts)
    kept = directory / "kept"
    kept.mkdir()
    for name, text in texts.items():
        (kept / name).write_text(text)
    files = {name: str(kept / name) for name in texts}
    for side, table in TABLES:
        if (file := directory / "trace" / f"{side}.pcap" / table).is_file():
            files[f"{side}-{table}"] = str(file)
    if (file := directory / link_records.TABLE).is_file():
        files[link_records.TABLE] = str(file)
    return files


def _unread(trace: Mapping[str, Any]) -> str | None:
    """Why a capture could not be read to its end; None where it could."""
    return trace.get("error") or trace.get("damage")


def _largest_connection(trace: Mapping[str, Any]) -> dict[str, Any] | None:
    """The QUIC connection by which most came."""
    connections: list[dict[str, Any]] = [each for each in trace.get("connections", []) if each["protocol"] == "quic"]
    return max(connections, key=lambda each: each["server_sent"]["bytes"], default=None)


def _missed(log: Path) -> int:
    """Packets that tcpdump could not keep up with."""
    match = re.search(r"(\d+) packets? dropped by kernel", log.read_text())
    return int(match[1]) if match else 0


def _has_secrets(key_log: Path) -> bool:
    return key_log.is_file() and "TRAFFIC_SECRET" in key_log.read_text(errors="replace")


def _trace(capture: Path, keys: list[Path], directory: Path) -> dict[str, Any]:
    """What the packets say; why not, where they cannot be read."""
    command = [str(host.binary()), "trace", str(capture), "--out", str(directory / "trace"), "--json"]
    command += [word for path in keys for word in ("--keys", str(path))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRACE_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"the capture of {capture.stat().st_size} bytes was not read within {TRACE_S:.0f} s"}
    try:
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    except (ValueError, IndexError):
        return {"error": done.stderr.strip()[-500:]}
    summary.pop("capture", None)
    return summary
