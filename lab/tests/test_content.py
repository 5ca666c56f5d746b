import hashlib
import re
import zlib
from pathlib import Path

from bentpipe_lab.net import content


def test_the_page_is_the_kepler_page() -> None:
    sizes = content.page_sizes()
    assert len(sizes) == 75
    assert next(iter(sizes)) == content.PAGE_ROOT
    assert sum(sizes.values()) == 815_804


def test_what_is_written_is_what_is_told(tmp_path: Path) -> None:
    for item in content.write(tmp_path).values():
        data = (tmp_path / item.path).read_bytes()
        assert len(data) == item.size
        assert hashlib.sha256(data).hexdigest() == item.sha256


def test_the_same_bytes_every_time_and_different_ones_per_path() -> None:
    assert content.incompressible("a", 100) == content.incompressible("a", 100)
    assert content.incompressible("a", 100) != content.incompressible("b", 100)


def test_no_compression_shortens_it() -> None:
    data = content.incompressible("x", 100_000)
    assert len(zlib.compress(data, 9)) >= len(data)


def test_the_html_names_every_other_object() -> None:
    size = content.page_sizes()[content.PAGE_ROOT]
    document = content.root_document(size)
    assert len(document) == size
    named = {f"kepler/{path}" for path in re.findall(r'src="([^"]+)"', document.decode())}
    assert named == set(content.page_sizes()) - {content.PAGE_ROOT}
