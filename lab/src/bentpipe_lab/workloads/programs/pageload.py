"""Load a page the way a browser does: the HTML first, then everything that it names, as fast as the rules allow.

A program of its own, because it runs inside the client's namespace: it reads a task as JSON from standard
input and prints the outcome as JSON. HTTP/1.1 uses at most six connections, HTTP/2 exactly one, over
TLS 1.3; nothing is kept from an earlier load.
"""

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import pycurl

from bentpipe_lab.records.verdict import Verdict

HTTP1_CONNECTIONS = 6


@dataclass
class Fetch:
    """One object on its way."""

    path: str
    size: int
    sha256: str
    requested_s: float = 0.0
    first_byte_s: float | None = None
    complete_s: float | None = None
    received: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def as_record(self) -> dict[str, Any]:
        """As it is kept in the sample."""
        return {
            "path": self.path,
            "size": self.size,
            "requested_s": round(self.requested_s, 4),
            "first_byte_s": None if self.first_byte_s is None else round(self.first_byte_s, 4),
            "complete_s": None if self.complete_s is None else round(self.complete_s, 4),
        }


class PageLoad:
    """One load of one page."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.fetches = [Fetch(item["path"], item["size"], item["sha256"]) for item in task["objects"]]
        self.multi = pycurl.CurlMulti()
        if task["protocol"] == "http2":
            self.multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
            self.multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
        else:
            self.multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, HTTP1_CONNECTIONS)
        self.start = time.monotonic()
        self.moved = self.start

    def run(self) -> dict[str, Any]:
        """Load it; the outcome as JSON data."""
        verdict, detail = self._load(self.fetches[:1])
        if verdict is Verdict.OK:
            verdict, detail = self._load(self.fetches[1:])
        ended = max((fetch.complete_s for fetch in self.fetches if fetch.complete_s is not None), default=None)
        return {
            "verdict": verdict,
            "seconds": ended if verdict is Verdict.OK else None,
            "bytes_received": sum(fetch.received for fetch in self.fetches),
            "detail": detail,
            "objects": [fetch.as_record() for fetch in self.fetches],
        }

    def _load(self, fetches: list[Fetch]) -> tuple[Verdict, str]:
        handles = {self._handle(fetch): fetch for fetch in fetches}
        for handle in handles:
            self.multi.add_handle(handle)
        open_count = len(handles)
        while open_count:
            _, running = self.multi.perform()
            _, ended, failed = self.multi.info_read(len(handles))
            for handle, code, message in failed:
                return _verdict(code, message), f"{handles[handle].path}: {message}"
            for handle in ended:
                open_count -= 1
                verdict, detail = self._finish(handle, handles[handle])
                if verdict is not Verdict.OK:
                    return verdict, detail
            if time.monotonic() - self.moved > self.task["stall_s"]:
                received = sum(fetch.received for fetch in self.fetches)
                return (Verdict.STALLED if received else Verdict.TIMED_OUT), f"at byte {received}"
            if running:
                due_ms = self.multi.timeout()
                self.multi.select(1.0 if due_ms < 0 else min(1.0, due_ms / 1000))
        return Verdict.OK, ""

    def _handle(self, fetch: Fetch) -> pycurl.Curl:
        handle = pycurl.Curl()
        handle.setopt(pycurl.URL, self.task["base"] + fetch.path)
        handle.setopt(pycurl.NOPROXY, "*")
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.RESOLVE, self.task["resolve"])
        handle.setopt(pycurl.WRITEFUNCTION, lambda data: self._arrive(fetch, data))
        if self.task["protocol"] == "http2":
            handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
            handle.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_3)
            handle.setopt(pycurl.CAINFO, self.task["authority"])
            handle.setopt(pycurl.PIPEWAIT, 1)
        else:
            handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        fetch.requested_s = time.monotonic() - self.start
        return handle

    def _arrive(self, fetch: Fetch, data: bytes) -> None:
        self.moved = time.monotonic()
        if fetch.first_byte_s is None:
            fetch.first_byte_s = self.moved - self.start
        fetch.received += len(data)
        fetch.digest.update(data)

    def _finish(self, handle: pycurl.Curl, fetch: Fetch) -> tuple[Verdict, str]:
        fetch.complete_s = time.monotonic() - self.start
        fetch.requested_s += handle.getinfo(pycurl.PRETRANSFER_TIME)
        status, version = handle.getinfo(pycurl.RESPONSE_CODE), handle.getinfo(pycurl.INFO_HTTP_VERSION)
        wanted = pycurl.CURL_HTTP_VERSION_2_0 if self.task["protocol"] == "http2" else pycurl.CURL_HTTP_VERSION_1_1
        self.multi.remove_handle(handle)
        if status != 200 or version != wanted:
            return (
                Verdict.FAILED,
                f"{fetch.path}: HTTP status {status}, version {version} where {wanted} was asked for",
            )
        if fetch.received != fetch.size or fetch.digest.hexdigest() != fetch.sha256:
            return Verdict.WRONG_CONTENT, f"{fetch.path}: {fetch.received} of {fetch.size} bytes"
        return Verdict.OK, ""


def _verdict(code: int, message: str) -> Verdict:
    if "reset by peer" in message:
        return Verdict.RESET
    return {
        pycurl.E_COULDNT_CONNECT: Verdict.REFUSED,
        pycurl.E_OPERATION_TIMEDOUT: Verdict.TIMED_OUT,
        pycurl.E_PARTIAL_FILE: Verdict.CUT_SHORT,
        pycurl.E_GOT_NOTHING: Verdict.CUT_SHORT,
    }.get(code, Verdict.FAILED)


if __name__ == "__main__":
    json.dump(PageLoad(json.load(sys.stdin)).run(), sys.stdout)
