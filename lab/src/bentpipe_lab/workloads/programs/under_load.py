"""Delay beside bulk transfers: small requests, a call of 50 packets a second, and pings, for a fixed time.

A program of its own, because it runs inside the client's namespace: it reads a task as JSON from standard input and
prints the outcome as JSON. Responses per minute are those of draft-ietf-ippm-responsiveness: probes over new
connections, and probes over the connections that carry the load.
"""

import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pycurl

from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict

LOADS = 4
"""Connections that carry the load."""
PROBE_EVERY_S = 0.5
PACKETS_A_SECOND, PACKET_BYTES = 50, 172
"""A call with G.711: 20 ms of sound and an RTP header."""
PATIENCE_S = 3.0
"""Probes that have no answer so long after the end count as lost."""
TRIMMED = 0.95
"""Share of the fastest probes whose mean counts (the draft's section 4.3)."""


@dataclass
class Probes:
    """Seconds of what came back."""

    tcp: list[float] = field(default_factory=list)
    tls: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    """Over connections that carry the load."""


class Bulk:
    """Bulk transfers over HTTP/2, each over a connection of its own that probes share with it."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.bytes = 0
        self.failure = ""
        self.probes = Probes()
        self.alone = pycurl.CurlMulti()
        self.multis = []
        for _ in range(LOADS if task["load"] != "none" else 0):
            multi = pycurl.CurlMulti()
            multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
            multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
            multi.add_handle(self._load())
            self.multis.append(multi)

    def probe(self, number: int) -> None:
        """One small request over a new connection, and one over a connection with load."""
        fresh = self._handle(self.task["small"], "fresh")
        fresh.setopt(pycurl.FRESH_CONNECT, 1)
        fresh.setopt(pycurl.FORBID_REUSE, 1)
        self.alone.add_handle(fresh)
        if self.multis:
            own = self._handle(self.task["small"], "own")
            own.setopt(pycurl.PIPEWAIT, 1)
            self.multis[number % len(self.multis)].add_handle(own)

    def step(self, *, restart: bool) -> None:
        """Go on with whatever can go on."""
        for multi in (self.alone, *self.multis):
            multi.perform()
            _, ended, failed = multi.info_read()
            for handle, _code, message in failed:
                multi.remove_handle(handle)
                self.failure = message
            for handle in ended:
                multi.remove_handle(handle)
                self._note(handle)
                if handle.kind == "load" and restart:
                    multi.add_handle(self._load())

    def _note(self, handle: Any) -> None:
        connected, secured = handle.getinfo(pycurl.CONNECT_TIME), handle.getinfo(pycurl.APPCONNECT_TIME)
        asked, answered = handle.getinfo(pycurl.PRETRANSFER_TIME), handle.getinfo(pycurl.STARTTRANSFER_TIME)
        if handle.kind == "fresh":
            self.probes.tcp.append(connected)
            self.probes.tls.append(secured - connected)
            self.probes.http.append(answered - asked)
            self.probes.total.append(answered)
        elif handle.kind == "own":
            self.probes.own.append(answered - asked)

    def _load(self) -> Any:
        if self.task["load"] == "download":
            return self._handle(self.task["large"], "load")
        handle = self._handle(f"upload/load-{time.monotonic_ns()}", "load")
        handle.source = Path(self.task["source"]).open("rb")  # noqa: SIM115 (ends with the handle)
        handle.setopt(pycurl.UPLOAD, 1)
        handle.setopt(pycurl.READFUNCTION, self._sent(handle))
        handle.setopt(pycurl.INFILESIZE_LARGE, Path(self.task["source"]).stat().st_size)
        return handle

    def _sent(self, handle: Any) -> Any:
        def read(count: int) -> bytes:
            data: bytes = handle.source.read(count)
            self.bytes += len(data)
            return data

        return read

    def _handle(self, path: str, kind: str) -> Any:
        handle = pycurl.Curl()
        handle.kind = kind
        handle.setopt(pycurl.URL, self.task["base"] + path)
        handle.setopt(pycurl.NOPROXY, "*")
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.RESOLVE, self.task["resolve"])
        handle.setopt(pycurl.CAINFO, self.task["authority"])
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.WRITEFUNCTION, self._arrived if kind == "load" else len)
        return handle

    def _arrived(self, data: bytes) -> None:
        self.bytes += len(data)


class Call(threading.Thread):
    """A call: small datagrams at a fixed rate, each sent back by the other end."""

    def __init__(self, task: dict[str, Any], until: float) -> None:
        super().__init__()
        self.address, self.until = (task["address"], task["echo_port"]), until
        self.sent = 0
        self.rtts: list[float] = []

    def run(self) -> None:
        """Send and receive until the time is up."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.connect(self.address)
            due = time.monotonic()
            while due < self.until + PATIENCE_S:
                if due < self.until:
                    line.send(struct.pack("!d", time.monotonic()).ljust(PACKET_BYTES, b"\x00"))
                    self.sent += 1
                due += 1 / PACKETS_A_SECOND
                while (left := due - time.monotonic()) > 0:
                    line.settimeout(left)
                    try:
                        (then,) = struct.unpack_from("!d", line.recv(2048))
                    except (TimeoutError, ConnectionRefusedError):
                        continue
                    self.rtts.append(time.monotonic() - then)


def main() -> int:
    """Read a task, do it, print what came of it."""
    task = json.load(sys.stdin)
    bulk = Bulk(task)
    _until(bulk, time.monotonic() + task["settle_s"])
    before, began = bulk.bytes, time.monotonic()
    until = began + task["seconds"]
    ping = subprocess.Popen(
        ["ping", "-n", "-i", "0.2", "-w", str(round(task["seconds"])), task["address"]],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    call = Call(task, until)
    call.start()
    _until(bulk, until, probing=True)
    load = (bulk.bytes - before) * 8e-6 / (time.monotonic() - began)
    _until(bulk, time.monotonic() + PATIENCE_S)
    call.join()
    pings = [float(value) / 1e3 for value in re.findall(r"time=([\d.]+) ms", ping.communicate()[0])]
    json.dump(asdict(outcome(task, bulk, call, pings, load)), sys.stdout)
    return 0


def _until(bulk: Bulk, moment: float, *, probing: bool = False) -> None:
    due, number = time.monotonic(), 0
    while (now := time.monotonic()) < moment:
        if probing and now >= due:
            bulk.probe(number)
            due, number = due + PROBE_EVERY_S, number + 1
        bulk.step(restart=True)
        time.sleep(0.002)


def outcome(task: dict[str, Any], bulk: Bulk, call: Call, pings: Sequence[float], load_mbit_s: float) -> Outcome:
    """All figures; without a single answer to a request it is a failure."""
    probes = bulk.probes
    if not probes.total:
        return Outcome(
            Verdict.TIMED_OUT, detail=f"no request was answered in {task['seconds']} s {bulk.failure}".strip()
        )
    if task["load"] != "none" and not bulk.bytes:
        return Outcome(Verdict.FAILED, detail=f"the load did not begin: {bulk.failure or 'no byte moved'}")
    foreign = statistics.mean([trimmed(probes.tcp), trimmed(probes.tls), trimmed(probes.http)])
    minutes = [60 / foreign, *([60 / trimmed(probes.own)] if probes.own else [])]
    metrics = {
        "rpm": statistics.mean(minutes),
        **_two("request", probes.total), **_two("call_rtt", call.rtts), **_two("ping", pings),
        "call_loss_percent": 100 * (1 - len(call.rtts) / max(call.sent, 1)),
        "load_mbit_s": load_mbit_s,
    }  # fmt: skip
    return Outcome(Verdict.OK, task["seconds"], bulk.bytes, metrics=metrics)


def trimmed(values: Sequence[float]) -> float:
    """The mean of the fastest 95 %, seconds."""
    kept = sorted(values)[: max(1, round(TRIMMED * len(values)))]
    return statistics.mean(kept)


def _two(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    high = sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]
    return {f"{name}_median_s": statistics.median(values), f"{name}_p95_s": high}


if __name__ == "__main__":
    sys.exit(main())
