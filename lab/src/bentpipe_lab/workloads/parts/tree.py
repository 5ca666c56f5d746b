"""A tree of files, the same on every run, and its digest."""

import hashlib
from pathlib import Path

from bentpipe_lab.net import content

FILES, LARGE = 200, 1_000_000
"""Small files of a few kB, and one of a megabyte."""


def write(root: Path) -> str:
    """Write it unless it is there; its digest."""
    if not root.exists():
        random = content.generator("tree")
        for number in range(FILES):
            path = f"directory-{number % 10}/file-{number}"
            content.write_file(root, path, content.incompressible(path, random.randrange(200, 8000)))
        content.write_file(root, "large", content.incompressible("tree/large", LARGE))
    return digest(root)


def size(root: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in _files(root))


def digest(root: Path) -> str:
    """SHA-256 of all paths and contents."""
    total = hashlib.sha256()
    for path in _files(root):
        total.update(str(path.relative_to(root)).encode() + b"\x00" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts)
