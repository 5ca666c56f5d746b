"""The bounds, as the binary gives them, against the worked numbers of the transport notes, section 3."""

from pathlib import Path

import pytest

from bentpipe_lab.errors import UnknownNameError
from bentpipe_lab.net import content, packet
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.workloads import WORKLOADS

SCENARIO = """\
name = "notes"
source = "the notes' own table"
seed = 1
ground = {{ delay = "{ground} ms" }}

[forward]
rate = "20 Mbit/s"
delay = "{delay} ms"
loss = "{loss} %"
queue = "1 BDP"

[return]
rate = "2 Mbit/s"
delay = "{delay} ms"
queue = "1 BDP"
"""


def link(directory: Path, delay: int = 300, loss: int = 0, ground: int = 0) -> Link:
    scenario = directory / "notes.toml"
    text = SCENARIO.format(delay=delay, loss=loss, ground=ground)
    scenario.write_text(text if ground else text.replace('ground = { delay = "0 ms" }\n', ""))
    return Link.from_explanation(explain(scenario))


def bound_s(workload: str, over: Link) -> float:
    return WORKLOADS[workload].bound_s(over)


@pytest.mark.parametrize(("loss", "expected"), [(0, 4.98), (1, 5.02), (10, 5.46)])
def test_10_mib_warm(tmp_path: Path, loss: int, expected: float) -> None:
    assert bound_s("download 10 MiB", link(tmp_path, loss=loss)) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("loss", "expected"), [(0, 1.44), (3, 1.46), (10, 1.53)])
def test_2_mb_warm(tmp_path: Path, loss: int, expected: float) -> None:
    assert bound_s("download 2 MB", link(tmp_path, loss=loss)) == pytest.approx(expected, abs=0.006)


def test_first_byte_pays_the_ground_twice(tmp_path: Path) -> None:
    assert bound_s("first byte", link(tmp_path, delay=250, ground=40)) == pytest.approx(0.660)


def test_a_page_of_880_kb_pays_a_round_trip_per_dependent_step(tmp_path: Path) -> None:
    """The notes' row (d): 580 ms and 20 Mbit/s; n = 2 is 1.53 s, n = 3 is 2.11 s; our page has 816 kB of it."""
    path = link(tmp_path, delay=290)
    less = (880_000 - content.page_bytes()) * path.forward.payload_s
    assert bound_s("page HTTP/1.1", path) + less == pytest.approx(1.53, abs=0.006)
    assert bound_s("page HTTP/2", path) + less == pytest.approx(2.11, abs=0.006)


def test_an_upload_goes_the_other_way(tmp_path: Path) -> None:
    assert bound_s("upload 10 MiB", link(tmp_path)) == pytest.approx(0.6 + 10 * (4.98 - 0.6), abs=0.05)


def test_what_a_packet_carries_is_what_the_binary_says(tmp_path: Path) -> None:
    path = link(tmp_path)
    assert packet.WIRE_PER_PAYLOAD * 8 / path.forward.rate_bit_s == pytest.approx(path.forward.payload_s)


def test_unknown(geo: Link) -> None:
    with pytest.raises(UnknownNameError, match="there is no workload 'downlod 2 MB'; did you mean 'download 2 MB'"):
        bound_s("downlod 2 MB", geo)
