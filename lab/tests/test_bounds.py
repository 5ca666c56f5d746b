"""The bounds against the worked numbers of the transport notes, section 3."""

from dataclasses import replace

import pytest

from bentpipe_lab.analysis import bounds
from bentpipe_lab.errors import UnknownNameError
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Direction, Link
from bentpipe_lab.workloads import WORKLOADS


def bound_s(workload: str, link: Link) -> float:
    return WORKLOADS[workload].bound_s(link)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 4.98), (0.01, 5.02), (0.10, 5.46)])
def test_10_mib_warm(geo: Link, loss: float, expected: float) -> None:
    lossy = replace(geo, forward=Direction(20e6, 0.3, loss))
    assert bound_s("download 10 MiB", lossy) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 1.44), (0.03, 1.46), (0.10, 1.53)])
def test_2_mb_warm(geo: Link, loss: float, expected: float) -> None:
    lossy = replace(geo, forward=Direction(20e6, 0.3, loss))
    assert bound_s("download 2 MB", lossy) == pytest.approx(expected, abs=0.006)


def test_first_byte_pays_the_ground_twice(geo: Link) -> None:
    link = replace(geo, satellite_rtt_s=0.5, ground_rtt_s=0.08)
    assert bound_s("first byte", link) == pytest.approx(0.660)


def test_a_page_of_880_kb_pays_a_round_trip_per_dependent_step(geo: Link) -> None:
    """The notes' row (d): 580 ms and 20 Mbit/s; n = 2 is 1.53 s, n = 3 is 2.11 s; our page has 816 kB of it."""
    link = replace(geo, satellite_rtt_s=0.58)
    less = bounds.transfer_s(880_000 - content.page_bytes(), link.forward)
    assert bound_s("page HTTP/1.1", link) + less == pytest.approx(1.53, abs=0.006)
    assert bound_s("page HTTP/2", link) + less == pytest.approx(2.11, abs=0.006)


def test_an_upload_goes_the_other_way(geo: Link) -> None:
    assert bound_s("upload 10 MiB", geo) == pytest.approx(0.6 + 10 * (4.98 - 0.6), abs=0.05)


def test_unknown(geo: Link) -> None:
    with pytest.raises(UnknownNameError, match="there is no workload 'downlod 2 MB'; did you mean 'download 2 MB'"):
        bound_s("downlod 2 MB", geo)
