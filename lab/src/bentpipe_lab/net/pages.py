"""Web pages of different shapes: generated, incompressible, the same bytes on every run.

Images are valid, and as many bytes as they have to be, by a block that decoders skip. A page is loaded when everything
is there that it names, directly or through style sheets.
"""

import html
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import pack

from bentpipe_lab.net import content

HOST = content.HOST
THIRD_PARTIES = tuple(f"cdn{number}.third.bentpipe.test" for number in range(1, 7))
ROOT = "pages"
IMAGE_PIXELS = (64, 64)
PICTURE_PIXELS = (1600, 1000)
LEAST_PNG = 1000
"""Bytes; smaller images are GIFs of one pixel."""


@dataclass(frozen=True)
class Object:
    """One file of a page."""

    host: str
    path: str
    """Below the server's root."""
    size: int

    @property
    def kind(self) -> str:
        """Its file name's extension."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Page:
    """A page: the document, then the objects that it needs."""

    name: str
    document: Object
    objects: Sequence[Object]
    steps: int = 1
    """How many objects depend on each other, one after the other, below the document."""

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.document.size + sum(each.size for each in self.objects)

    @property
    def hosts(self) -> list[str]:
        """The servers that it is spread over."""
        return list(dict.fromkeys(each.host for each in (self.document, *self.objects)))


def _page(name: str, document: int, sizes: Sequence[tuple[str, str, int]], steps: int = 1) -> Page:
    objects = [Object(host, f"{ROOT}/{name}/{path}", size) for host, path, size in sizes]
    return Page(name, Object(HOST, f"{ROOT}/{name}/index.html", document), objects, steps if sizes else 0)


def _kepler() -> Page:
    sizes = {path.removeprefix("kepler/"): size for path, size in content.page_sizes().items()}
    document = sizes.pop("index.html")
    return _page("kepler", document, [(HOST, path, size) for path, size in sizes.items()])


def _chain() -> Page:
    sheets = [(HOST, f"{step}.css", 10_000) for step in range(1, 6)]
    return _page("chain", 10_000, [*sheets, (HOST, "last.png", 50_000)], len(sheets) + 1)


PAGES: Mapping[str, Callable[[], Page]] = {
    "kepler": _kepler,
    "picture": lambda: _page("picture", 1_500, [(HOST, "picture.png", 5_300_000 - 1_500)]),
    "small": lambda: _page("small", 11_000, []),
    "few large": lambda: _page("few-large", 5_000, [(HOST, f"{number}.png", 400_000) for number in range(5)]),
    "many small": lambda: _page("many-small", 20_000, [(HOST, f"{number}.png", 3_000) for number in range(300)]),
    "chain": _chain,
    "third parties": lambda: _page(
        "third-parties",
        10_000,
        [(THIRD_PARTIES[number % len(THIRD_PARTIES)], f"{number}.png", 20_000) for number in range(30)],
    ),
}
"""The Kepler-like page (75 objects, 880 kB); a large picture and a small page as Thomas et al. loaded them; others."""


def generated(number: int) -> Page:
    """One of a series of pages, as different as those of a list of popular sites; `number` is the seed."""
    random = content.generator(f"page {number}")
    count = min(400, round(random.lognormvariate(3.6, 0.9)) + 2)
    third = random.random() < 0.5
    objects = []
    for place in range(count):
        size = min(2_000_000, max(200, round(random.lognormvariate(9.0, 1.4))))
        host = random.choice(THIRD_PARTIES) if third and random.random() < 0.4 else HOST
        objects.append((host, f"{place}.png", size))
    return _page(f"site-{number}", max(20_000, 150 * count), objects)


def page(name: str) -> Page:
    """A page by name, or `site N` of the series; a `ValueError` tells what would be right."""
    if name in PAGES:
        return PAGES[name]()
    word, _, number = name.partition(" ")
    if word == "site" and number.isdecimal() and 1 <= int(number) <= 1000:
        return generated(int(number))
    raise ValueError(f"give one of {', '.join(PAGES)}, or site 1 to site 1000")


def write(root: Path, one: Page) -> None:
    """Write a page below a server's root, unless it is there."""
    target = root / one.document.path
    if target.exists():
        return
    for place, each in enumerate(one.objects):
        content.write_file(root, each.path, _body(one, each, place))
    content.write_file(root, one.document.path, _document(one))


def _body(one: Page, each: Object, place: int) -> bytes:
    match each.kind:
        case "css":
            following = one.objects[place + 1] if one.steps > 1 else None
            if following is None:
                rule = ""
            elif following.kind == "css":
                rule = f'@import "{following.path.rpartition("/")[2]}";\n'
            else:
                rule = f'#last {{ background-image: url("{following.path.rpartition("/")[2]}") }}\n'
            return _padded(rule, "/*", "*/", each)
        case "js":
            return _padded("", "/*", "*/", each)
        case "html":
            return _padded("", "<!--", "-->", each)
        case _ if each.size < LEAST_PNG:
            return _gif(each)
        case _:
            return _png(each, PICTURE_PIXELS if one.name == "picture" else IMAGE_PIXELS)


def _document(one: Page) -> bytes:
    lines = [
        "<!doctype html>",
        f"<title>{html.escape(one.name)}</title>",
        "<script>performance.setResourceTimingBufferSize(2000)</script>",
    ]
    chained = one.steps > 1
    named = one.objects[:1] if chained else one.objects
    tags = []
    for each in named:
        address = html.escape(_address(one, each))
        match each.kind:
            case "css":
                lines.append(f'<link rel="stylesheet" href="{address}">')
            case "js":
                tags.append(f'<script src="{address}"></script>')
            case "html":
                tags.append(f'<iframe src="{address}" title=""></iframe>')
            case _:
                tags.append(f'<img src="{address}" alt="">')
    lines += [f"<h1>{html.escape(one.name)}</h1>", f"<p>{len(one.objects)} objects, {one.size} bytes</p>"]
    if chained:
        # A script waits for the style sheets; that it asks for the layout asks for the last picture, before the page is
        # done.
        lines += ['<div id="last" style="width: 64px; height: 64px"></div>', "<script>last.offsetWidth</script>"]
    return _padded("\n".join([*lines, *tags, ""]), "<!--", "-->", one.document)


def _address(one: Page, each: Object) -> str:
    if each.host == one.document.host:
        return each.path.removeprefix(f"{ROOT}/{one.name}/")
    return f"//{each.host}:{content.WEB_PORT}/{each.path}"


def _padded(text: str, begin: str, end: str, each: Object) -> bytes:
    """Text, and a comment that fills it up to its size."""
    room = each.size - len(text) - len(begin) - len(end)
    if room < 0:
        return text.encode() if len(text) == each.size else (text + " " * max(0, each.size - len(text))).encode()
    filling = content.incompressible(each.path, room).hex()[:room]
    return f"{text}{begin}{filling}{end}".encode()


def _gif(each: Object) -> bytes:
    """One pixel, and comment blocks that fill it up."""
    head = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    tail = b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
    room = each.size - len(head) - len(tail) - 3
    if room < 2:
        return (head + tail).ljust(each.size, b"\x00")
    noise = content.incompressible(each.path, room)
    blocks = b""
    while room > 0:
        length = min(255, room - 1)
        blocks += bytes([length]) + noise[:length]
        noise, room = noise[length:], room - 1 - length
    return head + b"!\xfe" + blocks + b"\x00" + tail


def _png(each: Object, pixels: tuple[int, int]) -> bytes:
    """A picture of one grey, and a private chunk that fills it up."""
    width, height = pixels
    rows = zlib.compress((b"\x00" + b"\x99" * width) * height, 9)
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", pack("!IIBBBBB", width, height, 8, 0, 0, 0, 0))
    tail = _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    return head + _chunk(b"ruNd", content.incompressible(each.path, each.size - len(head) - len(tail) - 12)) + tail


def _chunk(name: bytes, data: bytes) -> bytes:
    return pack("!I", len(data)) + name + data + pack("!I", zlib.crc32(name + data))
