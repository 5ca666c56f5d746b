"""Transfers by curl, checked byte for byte."""

import hashlib
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict

STALL_S = 30
"""A run in which no byte moves for this long has stalled."""
MOMENTS = {"connect_s": "time_connect", "tls_s": "time_appconnect", "first_byte_s": "time_starttransfer"}
"""Figures of a download, by curl's names."""
CURVE_STEP_S = 0.01
"""Curves keep at most one point in this time."""


def warm_up(path: Topology) -> list[Outcome]:
    """Carry traffic both ways, as a tunnel has that has been up for a while. Its outcomes are not results."""
    return [download(path, "10MiB"), upload(path, "2MB"), download(path, "10MiB")]


def sha256(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(path: Topology, name: str, until: str = "time_total", *, tls: bool = False) -> Outcome:
    """Download a file of the server over a new connection; `until` is curl's name of the moment that counts."""
    wanted = path.origin.objects[name]
    trust = ["--tlsv1.3", "--cacert", str(path.origin.certificate)] if tls else []
    argv = _curl("--output", "-", *trust, f"{'https' if tls else 'http'}://{SERVER4}/{wanted.path}")
    process = subprocess.Popen(
        path.client.command(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        arrivals, digest = _receive(process)
        assert process.stderr is not None
        measured = _printed(process.stderr.read())
        code = process.wait(STALL_S)
    finally:
        process.kill()
        process.wait()
    received = arrivals[-1][1] if arrivals else 0
    failure = _failure(code, measured, received, wanted.size)
    if failure:
        return failure
    if digest != wanted.sha256:
        return Outcome(Verdict.WRONG_CONTENT, bytes_received=received, detail=f"SHA-256 {digest}")
    return Outcome(
        Verdict.OK, measured[until], received, curve=_curve(arrivals, measured["time_starttransfer"]),
        metrics={name: measured[field] for name, field in MOMENTS.items() if measured[field]},
    )  # fmt: skip


def upload(path: Topology, name: str) -> Outcome:
    """Upload a file by PUT; it ends with the server's answer, and the server's copy is checked."""
    sent = path.origin.objects[name]
    stored = f"{name}-{time.monotonic_ns()}"
    source = path.origin.uploads.parent / "content" / sent.path
    argv = _curl("--upload-file", str(source), "--header", "Expect:", f"http://{SERVER4}/upload/{stored}")
    done = subprocess.run(path.client.command(argv), capture_output=True, stdin=subprocess.DEVNULL, check=False)
    measured = _printed(done.stderr)
    failure = _failure(done.returncode, measured, int(measured.get("size_upload", 0)), sent.size)
    if failure:
        return failure
    copy = path.origin.uploads / stored
    whole = copy.is_file() and sha256(copy) == sent.sha256
    copy.unlink(missing_ok=True)
    if not whole:
        return Outcome(Verdict.WRONG_CONTENT, detail="the server's copy differs from what was sent")
    return Outcome(Verdict.OK, measured["time_total"], int(measured["size_download"]))


def _receive(process: subprocess.Popen[bytes]) -> tuple[list[tuple[float, int]], str]:
    """Read a program's output to its end: when how many bytes had arrived, and their SHA-256."""
    assert process.stdout is not None
    arrivals: list[tuple[float, int]] = []
    digest, count = hashlib.sha256(), 0
    descriptor = process.stdout.fileno()
    while True:
        readable, _, _ = select.select([descriptor], [], [], 2 * STALL_S)
        chunk = os.read(descriptor, 1 << 16) if readable else b""
        if not chunk:
            return arrivals, digest.hexdigest()
        count += len(chunk)
        digest.update(chunk)
        arrivals.append((time.monotonic(), count))


def _curve(arrivals: Sequence[tuple[float, int]], first_byte_s: float) -> list[tuple[float, int]]:
    """Arrivals on the transfer's own clock, thinned; the first and the last are always kept."""
    curve: list[tuple[float, int]] = []
    start = arrivals[0][0] - first_byte_s
    for at, count in arrivals:
        if curve and at - start - curve[-1][0] < CURVE_STEP_S and count != arrivals[-1][1]:
            continue
        curve.append((round(at - start, 4), count))
    return curve


def _curl(*words: str) -> list[str]:
    """A curl command line; what curl knows of the transfer comes as JSON on its standard error."""
    return [
        "curl", "--silent", "--globoff", "--noproxy", "*", "--http1.1", "--connect-timeout", str(STALL_S),
        "--speed-limit", "1", "--speed-time", str(STALL_S), "--write-out", "%{stderr}%{json}", *words,
    ]  # fmt: skip


def _printed(stderr: bytes) -> dict[str, Any]:
    text = stderr.decode(errors="replace")
    measured: dict[str, Any] = json.loads(text[text.index("{") :]) if "{" in text else {"errormsg": text.strip()}
    return measured


_CURL_EXIT = {7: Verdict.REFUSED, 28: Verdict.TIMED_OUT, 18: Verdict.CUT_SHORT, 52: Verdict.CUT_SHORT}


def _failure(code: int, measured: dict[str, Any], moved: int, size: int) -> Outcome | None:
    """The outcome of a transfer that did not end well; None when it did, as far as curl can tell."""
    said = str(measured.get("errormsg") or "")
    status = measured.get("http_code")
    if code == 0 and status in (200, 201, 204):
        return None
    if code == 0:
        return Outcome(Verdict.FAILED, bytes_received=moved, detail=f"HTTP status {status}")
    verdict = _CURL_EXIT.get(code, Verdict.FAILED)
    if "reset by peer" in said:
        verdict = Verdict.RESET
    elif "unreachable" in said or "No route" in said:
        verdict = Verdict.UNREACHABLE
    elif verdict is Verdict.TIMED_OUT and 0 < moved < size:
        verdict = Verdict.STALLED
    return Outcome(verdict, bytes_received=moved, detail=f"curl {code} at byte {moved} of {size}: {said}")
