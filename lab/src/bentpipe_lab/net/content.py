"""What the web server serves: generated, incompressible, the same bytes on every run.

The page is the ETSI Kepler web reference page (ETSI TR 102 505) as used by Kosek, Cech, Bajpai and Ott,
"Exploring Proxying QUIC and HTTP/3 for Satellite Communication" (2022): 75 objects, about 880 kB. Its paths
and sizes lie in `data/kepler-page.csv`; the bytes are ours.
"""

import csv
import functools
import hashlib
import html
import random
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

MIB = 1 << 20
PAGE_ROOT = "kepler/index.html"
HOST = "origin.bentpipe.test"
"""The server's name."""
WEB_PORT = 4443
"""Of the web server that speaks HTTP/1.1, 2 and 3."""
PERF_HOST, PERF_PORT = "perf.bentpipe.test", 4460
"""Of `bentpipe perf server`."""
QUIC_HOST, QUIC_PORT = "server", 443
"""Of other people's QUIC servers, as the interop runner has them."""


@dataclass(frozen=True)
class Object:
    """One file of the server: its path below the document root, its size and its SHA-256."""

    path: str
    size: int
    sha256: str


FILES = {"first-byte": 100, "2MB": 2_000_000, "10MiB": 10 * MIB}
"""Single files, by path: size in bytes."""


def page_sizes() -> dict[str, int]:
    """The page's objects in order of loading, the HTML first: size in bytes by path."""
    with (files("bentpipe_lab.net") / "data/kepler-page.csv").open(encoding="utf-8") as table:
        sizes = {f"kepler/{row['path']}": int(row["bytes"]) for row in csv.DictReader(table)}
    return {PAGE_ROOT: sizes.pop(PAGE_ROOT), **sizes}


def page_bytes() -> int:
    """The size of the whole page."""
    return sum(page_sizes().values())


def incompressible(path: str, size: int) -> bytes:
    """Bytes that no compression shortens, chosen by the path."""
    return generator(path).randbytes(size)


def generator(seed: str) -> random.Random:
    """A generator of content by its seed."""
    return random.Random(f"bentpipe lab: {seed}")  # noqa: S311 (content, not a secret)


def root_document(size: int) -> bytes:
    """The page's HTML: it names every other object, and a comment fills it up to its size."""
    prefix = PAGE_ROOT.removesuffix("index.html")
    body = "".join(
        f'<img src="{html.escape(path.removeprefix(prefix))}">\n' for path in page_sizes() if path != PAGE_ROOT
    )
    head = f"<!doctype html>\n<title>Kepler reference page</title>\n{body}<!-- "
    room = size - len(head) - len(" -->\n")
    return (head + incompressible(PAGE_ROOT, room).hex()[:room] + " -->\n").encode()


def write(root: Path) -> dict[str, Object]:
    """Write everything below `root`; return the objects by path."""
    for one, data in _served():
        _lay(root, one.path, data)
    return {one.path: one for one, _ in _served()}


def write_file(root: Path, path: str, data: bytes) -> Object:
    """Write one file below `root`."""
    _lay(root, path, data)
    return _object(path, data)


@functools.cache
def _served() -> tuple[tuple[Object, bytes], ...]:
    """The files and the page. They are kept: each path has them, and to make them takes as long as to build it."""
    sizes = {**FILES, **page_sizes()}
    made = {
        path: root_document(size) if path == PAGE_ROOT else incompressible(path, size) for path, size in sizes.items()
    }
    return tuple((_object(path, data), data) for path, data in made.items())


def _object(path: str, data: bytes) -> Object:
    return Object(path, len(data), hashlib.sha256(data).hexdigest())


def _lay(root: Path, path: str, data: bytes) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
