"""A page in a browser: Chromium or Firefox, over HTTP/1.1, 2 or 3, from a real web server."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from bentpipe_lab.analysis import bounds
from bentpipe_lab.errors import MissingCapabilityError
from bentpipe_lab.net import content, pages, web
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.programs import Cargo, Debian, Program
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import QUIC, TCP, Metric, Option, Workload
from bentpipe_lab.workloads.programs import arrived, har, inside

CHROMIUM, CHROMEDRIVER = Debian("chromium"), Debian("chromedriver", package="chromium-driver")
FIREFOX, GECKODRIVER = Debian("firefox-esr"), Cargo("geckodriver", pinned="0.37.1")
CERTUTIL = Debian("certutil", package="libnss3-tools")
BROWSERS: Mapping[str, Sequence[Program]] = {
    "chromium": (CHROMIUM, CHROMEDRIVER),
    "firefox": (FIREFOX, GECKODRIVER, CERTUTIL),
}
"""The browser first, then its driver."""
VISITS = {"cold": 1, "repeat": 2, "three loads": 3}
"""Loads with one profile, the browser restarted before each; the last one counts.

A cold visit has nothing; a repeated one has what the first left, its cache included; of three loads each is timed,
content is never cached, and how the last one's bytes arrive is recorded, as Thomas et al. did.
"""
TLS_AND_DOCUMENT = 2
"""Round trips before the first object: TLS 1.3 from end to end, then the document."""
OF_A_THIRD_PARTY = 2
"""Round trips more: its name, and the handshake with it."""
LIMIT_S = 600.0


class WebPage(Workload):
    """One page, loaded by a real browser, every object verified by protocol and size."""

    name = "web page"
    order = 80
    measures = "page load time: from the first packet of the connection to the load event"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 30.0
    timeline = True
    programs = (web.CADDY, web.DNSMASQ, arrived.TCPDUMP, *(program for each in BROWSERS.values() for program in each))
    options: ClassVar[Mapping[str, Option]] = {
        "page": Option("kepler", check=pages.page),
        "protocol": Option("HTTP/2", tuple(har.PROTOCOLS)),
        "browser": Option("chromium", tuple(BROWSERS)),
        "visit": Option("cold", tuple(VISITS)),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "response_start_s": Metric("Response Start", "s"),
        "first_contentful_paint_s": Metric("First Contentful Paint", "s"),
        "largest_contentful_paint_s": Metric("Largest Contentful Paint", "s"),
        "page_load_s": Metric("Page Load Time", "s"),
        **{f"page_load_{number}_s": Metric(f"Page Load Time, load {number}", "s") for number in (1, 2, 3)},
        **{f"response_start_{number}_s": Metric(f"Response Start, load {number}", "s") for number in (1, 2, 3)},
        "name_lookup_s": Metric("lookup of the page's name", "s"),
        "objects_from_cache": Metric("objects from the cache", "", ""),
    }

    def with_options(self, chosen: Mapping[str, str]) -> Self:
        """The workload with something chosen of it."""
        one = super().with_options(chosen)
        one.loads = VISITS[one.option("visit")]
        return one

    def needs(self) -> Sequence[Program]:
        """The server and the chosen browser."""
        captures = [arrived.TCPDUMP] if self.option("visit") == "three loads" else []
        return (web.CADDY, web.DNSMASQ, *captures, *BROWSERS[self.option("browser")])

    def run(self, path: Topology) -> Outcome:
        """Load it in a new profile; HAR and screenshot of the load that counts are kept."""
        server = web.start(path)
        one = pages.page(self.option("page"))
        pages.write(server.root, one)
        visit, browser = self.option("visit"), self.option("browser")
        kept = path.directory.absolute() / "web"
        with tempfile.TemporaryDirectory(prefix="bentpipe-profile-") as profile:
            fields = {
                "browser": browser, "protocol": self.option("protocol"), "url": server.base + one.document.path,
                "further_hosts": [f"{host}:{content.WEB_PORT}" for host in one.hosts if host != one.document.host],
                "sizes": {
                    f"https://{each.host}:{content.WEB_PORT}/{each.path}": each.size
                    for each in (one.document, *one.objects)
                },
                "loads": self.loads, "count_all": visit == "three loads", "keep_cache": visit == "repeat",
                "limit_s": LIMIT_S, "pin": server.pin, "authority": str(server.authority),
                "profile": str(Path(profile, "profile")), "log": str(kept / "driver.log"),
                "screenshot": str(kept / "screenshot.png"), "har": str(kept / "page.har"),
                "capture": {
                    "device": "lan0", "port": content.WEB_PORT, "file": str(Path(profile, "load.pcap")),
                    "keys": str(Path(profile, "keys.log")),
                } if visit == "three loads" else None,
                **_places(browser),
            }  # fmt: skip
            return inside.task(path, "browse", fields, server.resolver)

    @property
    def over(self) -> str:
        """What the protocol is over."""
        return QUIC if self.option("protocol") == "HTTP/3" else TCP

    def bound_s(self, link: Link) -> float:
        """Its dependent round trips, in which bytes of others may already come; of a repeated visit, the document's."""
        one = pages.page(self.option("page"))
        if self.option("visit") == "repeat":
            return bounds.download_s(link, 0, TLS_AND_DOCUMENT - 1)
        further = OF_A_THIRD_PARTY if len(one.hosts) > 1 else 0
        # A proxy that splits QUIC ends its handshake too; nobody ends TLS over TCP.
        first = TLS_AND_DOCUMENT - 1 if self.over == QUIC else TLS_AND_DOCUMENT
        rest_s = max(bounds.download_s(link, one.size, 0), bounds.download_s(link, 0, one.steps + further))
        return bounds.download_s(link, 0, first) + rest_s


def _places(browser: str) -> dict[str, str]:
    program, driver = (each.found() for each in BROWSERS[browser][:2])
    certutil = CERTUTIL.path()
    if browser == "firefox" and certutil is None:
        raise MissingCapabilityError(f"certutil is not installed: {CERTUTIL.remedy()}")
    return {"binary": str(program), "driver": str(driver), "certutil": str(certutil or shutil.which("true"))}
