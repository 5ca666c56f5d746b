"""Web pages: what is generated, and how what a browser saw is judged."""

import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.campaign import plan, points
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import content, pages
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.programs import browse, har

NAMES = [*pages.PAGES, "site 1", "site 50"]
URL = f"https://{content.HOST}:{content.WEB_PORT}/pages/small/index.html"
IMAGE = URL.replace("index.html", "a.png")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_as_large_as_it_says_and_names_its_objects(tmp_path: Path, name: str) -> None:
    one = pages.page(name)
    pages.write(tmp_path, one)
    for each in (one.document, *one.objects):
        assert (tmp_path / each.path).stat().st_size == each.size, each.path
    text = "".join(path.read_text() for path in tmp_path.rglob("*.*") if path.suffix in (".html", ".css"))
    assert all(each.path.rpartition("/")[2] in text for each in one.objects)


def test_the_pages_are_those_of_the_publications() -> None:
    kepler = pages.page("kepler")
    assert len(kepler.objects) + 1 == 75
    assert kepler.size == content.page_bytes()
    assert pages.page("picture").size == 5_300_000
    assert pages.page("small").size == 11_000
    assert pages.page("chain").steps == 6
    assert len(pages.page("third parties").hosts) == 7


def test_images_are_valid(tmp_path: Path) -> None:
    pages.write(tmp_path, pages.page("kepler"))
    images = [path for path in (tmp_path / "pages/kepler").rglob("*") if path.suffix in (".gif", ".jpg")]
    assert len(images) > 30
    for path in images:
        data = path.read_bytes()
        if data.startswith(b"\x89PNG"):
            assert struct.unpack("!II", data[16:24]) == pages.IMAGE_PIXELS
            assert data.endswith(b"IEND\xaeB`\x82")
        else:
            assert data.startswith(b"GIF89a")
            assert data.rstrip(b"\x00").endswith(b";")


def test_the_series_has_different_pages() -> None:
    sizes = [pages.page(f"site {number}").size for number in range(1, 51)]
    assert len(set(sizes)) == 50
    assert min(sizes) * 5 < max(sizes)


def test_an_unknown_page_protocol_or_browser_is_told(tmp_path: Path) -> None:
    base = 'name = "web"\nclock = "real"\n[axes]\nscenario = "leo"\nsystem = "direct"\nworkload = "web page"\n'
    for axis, message in (
        ('"workload.page" = "keppler"', "give one of kepler, picture"),
        ('"workload.protocol" = "HTTP/4"', "no value 'HTTP/4'; did you mean 'HTTP/3'"),
        ('"workload.browser" = "chrome"', "no value 'chrome'"),
    ):
        with pytest.raises(LabError, match=message):
            points.expand(plan.parse(base + axis, tmp_path))


def test_a_repeated_visit_and_third_parties_have_bounds_of_their_own(geo: Any) -> None:
    page = WORKLOADS["web page"]
    cold = page.with_options({}).bound_s(geo)
    assert page.with_options({"visit": "repeat"}).bound_s(geo) < cold
    few = page.with_options({"page": "third parties"}).bound_s(geo)
    assert few == pytest.approx(5 * geo.path_rtt_s)
    assert page.with_options({"page": "chain"}).bound_s(geo) == pytest.approx(8 * geo.path_rtt_s)
    # While it waits for the last objects, the link carries others.
    picture = page.with_options({"page": "picture"}).bound_s(geo)
    assert picture == pytest.approx(2 * geo.path_rtt_s + pages.page("picture").size * geo.forward.payload_s)
    assert page.with_options({"page": "picture", "protocol": "HTTP/3"}).bound_s(geo) == pytest.approx(
        picture - geo.path_rtt_s
    )


def entry(name: str, size: int, protocol: str = "h2", **further: Any) -> dict[str, Any]:
    return {
        "name": name, "encodedBodySize": size, "decodedBodySize": size, "transferSize": size + 300,
        "nextHopProtocol": protocol, "startTime": 5.0, "fetchStart": 5.0, "domainLookupStart": 5.0,
        "domainLookupEnd": 6.0, "connectStart": 6.0, "secureConnectionStart": 300.0, "connectEnd": 905.0,
        "requestStart": 905.0, "responseStart": 1505.0, "responseEnd": 1600.0, "loadEventStart": 2505.0,
        "loadEventEnd": 2510.0, "domContentLoadedEventStart": 1700.0, "duration": 2505.0, **further,
    }  # fmt: skip


def seen(**changed: Any) -> dict[str, Any]:
    return {
        "navigation": entry(URL, 1000), "resources": [entry(IMAGE, 5000)], "first_paint_ms": 1805.0,
        "largest_paint_ms": 1905.0, "broken": [], "agent": "a browser", **changed,
    }  # fmt: skip


TASK = {"url": URL, "sizes": {URL: 1000, IMAGE: 5000}, "protocol": "HTTP/2"}


def test_times_count_from_the_first_packet_of_the_connection() -> None:
    outcome = browse.judged(TASK, seen())
    assert outcome.verdict is Verdict.OK
    assert outcome.seconds == 2.499
    assert outcome.bytes_received == 6000
    assert outcome.metrics == {
        "response_start_s": 1.499, "first_contentful_paint_s": 1.799, "largest_contentful_paint_s": 1.899,
        "page_load_s": 2.499, "name_lookup_s": 0.001, "objects_from_cache": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "verdict", "detail"),
    [
        ({"resources": []}, Verdict.CUT_SHORT, "a.png"),
        ({"broken": [IMAGE]}, Verdict.CUT_SHORT, "a.png"),
        ({"resources": [entry(IMAGE, 4999)]}, Verdict.WRONG_CONTENT, "4999 bytes of 5000"),
        ({"resources": [entry(IMAGE, 5000, "http/1.1")]}, Verdict.FELL_BACK, "http/1.1 where h2 was asked for"),
    ],
)
def test_a_page_that_is_not_whole_or_fell_back_is_no_result(changed: Any, verdict: Verdict, detail: str) -> None:
    outcome = browse.judged(TASK, seen(**changed))
    assert outcome.verdict is verdict
    assert outcome.seconds is None
    assert detail in outcome.detail


def test_what_came_from_the_cache_is_told_and_not_counted() -> None:
    outcome = browse.judged(TASK, seen(resources=[entry(IMAGE, 5000, "", transferSize=0)]))
    assert outcome.verdict is Verdict.OK
    assert (outcome.bytes_received, outcome.metrics["objects_from_cache"]) == (1000, 1.0)


def test_the_archive_has_every_request_with_its_version_and_times() -> None:
    log = har.of(seen(), URL, datetime(2026, 1, 1, tzinfo=UTC))["log"]
    assert log["version"] == "1.2"
    assert [each["request"]["url"] for each in log["entries"]] == [URL, IMAGE]
    first = log["entries"][0]
    assert first["response"]["httpVersion"] == "HTTP/2"
    assert (first["timings"]["dns"], first["timings"]["wait"], first["timings"]["receive"]) == (1.0, 600.0, 95.0)
    assert log["pages"][0]["pageTimings"]["onLoad"] == 2505.0
