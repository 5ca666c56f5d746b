"""Loads of one page by a browser, each timed by the browser's own clocks, each object by protocol and size.

A program of its own, because it runs inside the client's namespace: it reads a task as JSON from standard input and
prints the outcome as JSON. Times count from the navigation's `connectStart`, the first packet of its connection, so
that the browser's start and the lookup of the first name are not in them.
"""

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.remote.webdriver import WebDriver

from bentpipe_lab.errors import LabError
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.programs import arrived, har

SETTLE_S = 0.3
"""The largest paint is told a moment after it happened."""
NEVER_AHEAD = 2
"""Chromium's policy NetworkPredictionOptions: names are looked up and hosts connected to when they are asked for."""
TIMINGS = """
const done = arguments[arguments.length - 1];
const entries = [];
try {
  new PerformanceObserver((list) => entries.push(...list.getEntries()))
    .observe({type: "largest-contentful-paint", buffered: true});
} catch (error) { /* a browser without it */ }
setTimeout(() => {
  const paint = performance.getEntriesByType("paint").find((entry) => entry.name === "first-contentful-paint");
  done({
    navigation: performance.getEntriesByType("navigation")[0].toJSON(),
    resources: performance.getEntriesByType("resource").map((entry) => entry.toJSON()),
    first_paint_ms: paint ? paint.startTime : null,
    largest_paint_ms: entries.length ? entries[entries.length - 1].startTime : null,
    broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
    agent: navigator.userAgent,
  });
}, arguments[0] * 1000);
"""


def main() -> int:
    """Read a task, load its page, print what came of it."""
    task = json.load(sys.stdin)
    outcome = Outcome(Verdict.FAILED, detail="nothing was loaded")
    if task["capture"]:
        # Chromium and Firefox both write their TLS secrets there.
        os.environ["SSLKEYLOGFILE"] = task["capture"]["keys"]
    times: dict[str, float] = {}
    for number in range(1, task["loads"] + 1):
        outcome = _load(task, counted=number == task["loads"])
        if outcome.verdict is not Verdict.OK:
            break
        if task["loads"] > 1 and task["count_all"]:
            times[f"page_load_{number}_s"] = outcome.metrics["page_load_s"]
            times[f"response_start_{number}_s"] = outcome.metrics["response_start_s"]
    outcome.metrics.update(times)
    if task["capture"] and outcome.verdict is Verdict.OK:
        outcome = _with_arrivals(outcome, task["capture"])
    json.dump(asdict(outcome), sys.stdout)
    return 0


def _with_arrivals(outcome: Outcome, capture: dict[str, Any]) -> Outcome:
    """With how its bytes arrived; a load that ended well has done so whether this is known or not."""
    try:
        return replace(
            outcome, samples=arrived.samples(Path(capture["file"]), Path(capture["keys"]), outcome.bytes_received)
        )
    except LabError as error:
        return replace(outcome, detail=f"how its bytes arrived is not known: {error}")


def _captured(task: dict[str, Any], *, counted: bool) -> AbstractContextManager[None]:
    """A capture of the load that counts, where one is wanted."""
    if not counted or not task["capture"]:
        return nullcontext()
    capture = task["capture"]
    return arrived.captured(capture["device"], capture["port"], Path(capture["file"]))


def _load(task: dict[str, Any], *, counted: bool) -> Outcome:
    """Start the browser with the profile as it is, load the page, end the browser in order."""
    try:
        browser = BROWSERS[task["browser"]](task)
    except WebDriverException as error:
        return Outcome(Verdict.FAILED, detail=f"{task['browser']} does not start: {error.msg}")
    try:
        browser.set_page_load_timeout(task["limit_s"])
        browser.set_script_timeout(SETTLE_S + 30)
        with _captured(task, counted=counted):
            browser.get(task["url"])
            seen = browser.execute_async_script(TIMINGS, SETTLE_S)
        outcome = judged(task, seen)
        if counted:
            browser.save_screenshot(task["screenshot"])
            Path(task["har"]).write_text(json.dumps(har.of(seen, task["url"], datetime.now(UTC)), indent=1) + "\n")
            outcome.files.update({"screenshot.png": task["screenshot"], "page.har": task["har"]})
    except TimeoutException:
        return Outcome(Verdict.TIMED_OUT, detail=f"the page was not there after {task['limit_s']:.1f} s")
    except WebDriverException as error:
        return Outcome(_verdict(str(error.msg)), detail=str(error.msg).partition("\n")[0])
    finally:
        browser.quit()
    return outcome


def judged(task: dict[str, Any], seen: dict[str, Any]) -> Outcome:
    """What the browser saw, as an outcome: every object is to be whole, and over the protocol that was asked for."""
    entries = {entry["name"]: entry for entry in seen["resources"]}
    entries[task["url"]] = seen["navigation"]
    wanted: dict[str, int] = task["sizes"]
    absent = sorted(set(wanted) - set(entries))
    if absent or seen["broken"]:
        return Outcome(Verdict.CUT_SHORT, detail=f"not loaded: {', '.join([*absent, *seen['broken']][:5])}")
    wrong = {
        url: entries[url]["encodedBodySize"] for url, size in wanted.items() if entries[url]["encodedBodySize"] != size
    }
    if wrong:
        url, size = next(iter(wrong.items()))
        return Outcome(Verdict.WRONG_CONTENT, detail=f"{len(wrong)} objects, {url}: {size} bytes of {wanted[url]}")
    fetched = [entry for url, entry in entries.items() if url in wanted and not _from_cache(entry)]
    protocol = har.PROTOCOLS[task["protocol"]]
    other = sorted({entry["nextHopProtocol"] for entry in fetched if entry["nextHopProtocol"] != protocol})
    if other:
        return Outcome(Verdict.FELL_BACK, detail=f"{', '.join(other)} where {protocol} was asked for")
    navigation = seen["navigation"]
    origin = navigation["connectStart"] or navigation["fetchStart"]

    def since(moment_ms: float | None) -> float | None:
        return None if not moment_ms else round((moment_ms - origin) / 1e3, 4)

    figures = {
        "response_start_s": since(seen["navigation"]["responseStart"]),
        "first_contentful_paint_s": since(seen["first_paint_ms"]),
        "largest_contentful_paint_s": since(seen["largest_paint_ms"]),
        "page_load_s": since(seen["navigation"]["loadEventStart"]),
        "name_lookup_s": round((navigation["domainLookupEnd"] - navigation["domainLookupStart"]) / 1e3, 4),
        "objects_from_cache": float(len(wanted) - len(fetched)),
    }
    return Outcome(
        Verdict.OK, figures["page_load_s"], sum(wanted[entry["name"]] for entry in fetched),
        objects=[_object(entry, wanted, since) for entry in fetched],
        metrics={name: value for name, value in figures.items() if value is not None},
    )  # fmt: skip


def _object(entry: dict[str, Any], wanted: dict[str, int], since: Any) -> dict[str, Any]:
    return {
        "path": entry["name"],
        "size": wanted[entry["name"]],
        "requested_s": since(entry["requestStart"]),
        "first_byte_s": since(entry["responseStart"]),
        "complete_s": since(entry["responseEnd"]),
    }


def _from_cache(entry: dict[str, Any]) -> bool:
    return bool(entry["transferSize"] == 0 and entry["encodedBodySize"] > 0)


def _verdict(said: str) -> Verdict:
    for words, verdict in (
        ("ERR_CONNECTION_REFUSED", Verdict.REFUSED), ("connectionFailure", Verdict.REFUSED),
        ("ERR_CONNECTION_RESET", Verdict.RESET), ("netReset", Verdict.RESET),
        ("ERR_ADDRESS_UNREACHABLE", Verdict.UNREACHABLE), ("TIMED_OUT", Verdict.TIMED_OUT),
        ("netTimeout", Verdict.TIMED_OUT),
    ):  # fmt: skip
        if words in said:
            return verdict
    return Verdict.FAILED


def chromium(task: dict[str, Any]) -> WebDriver:
    """Chromium: one protocol is offered, the server's key is pinned."""
    options = webdriver.ChromeOptions()
    options.binary_location = task["binary"]
    host = task["url"].partition("//")[2].partition("/")[0]
    protocol = {
        "HTTP/1.1": ["--disable-http2", "--disable-quic"],
        "HTTP/2": ["--disable-quic"],
        "HTTP/3": ["--enable-quic", f"--origin-to-force-quic-on={','.join([host, *task['further_hosts']])}"],
    }[task["protocol"]]
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
        "--disable-extensions", "--no-proxy-server", "--window-size=1280,900", f"--user-data-dir={task['profile']}",
        f"--ignore-certificate-errors-spki-list={task['pin']}", *protocol,
    ):  # fmt: skip
        options.add_argument(argument)
    # A connection that is opened ahead, to a host that the profile knows, has no moments of its own: `connectStart` is
    # then that of the navigation, before the lookup of the name.
    options.add_experimental_option("prefs", {"net.network_prediction_options": NEVER_AHEAD})
    service = webdriver.ChromeService(task["driver"], log_output=task["log"])
    browser = webdriver.Chrome(options=options, service=service)
    if not task["keep_cache"]:
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    return browser


def firefox(task: dict[str, Any]) -> WebDriver:
    """Firefox: one protocol is offered, the server's authority is the only one of its profile's own."""
    profile = Path(task["profile"])
    if not (profile / "cert9.db").exists():
        profile.mkdir(parents=True, exist_ok=True)
        database = ["-d", f"sql:{profile}"]
        subprocess.run([task["certutil"], "-N", *database, "--empty-password"], check=True, capture_output=True)
        subprocess.run(
            [task["certutil"], "-A", *database, "-n", "lab", "-t", "C,,", "-i", task["authority"]],
            check=True, capture_output=True,
        )  # fmt: skip
    options = webdriver.FirefoxOptions()
    options.binary_location = task["binary"]
    options.add_argument("-headless")
    options.add_argument("-profile")
    options.add_argument(str(profile))
    mapping = ",".join(
        f"{host.partition(':')[0]};h3=:{host.partition(':')[2]}"
        for host in (task["url"].partition("//")[2].partition("/")[0], *task["further_hosts"])
    )
    http3 = task["protocol"] == "HTTP/3"
    for name, value in {
        "network.http.http2.enabled": task["protocol"] != "HTTP/1.1",
        "network.http.http3.enable": http3,
        "network.http.altsvc.enabled": http3,
        "network.http.http3.alt-svc-mapping-for-testing": mapping if http3 else "",
        "network.http.http3.force-use-alt-svc-mapping-for-testing": http3,
        "network.http.http3.disable_when_third_party_roots_found": False,
        "network.proxy.type": 0,
        "network.captive-portal-service.enabled": False,
        "network.connectivity-service.enabled": False,
        "network.trr.mode": 5,
        "browser.cache.disk.enable": task["keep_cache"],
        "browser.cache.memory.enable": task["keep_cache"],
        "privacy.reduceTimerPrecision": False,
        "security.OCSP.enabled": 0,
    }.items():
        options.set_preference(name, value)
    service = webdriver.FirefoxService(task["driver"], log_output=task["log"])
    return webdriver.Firefox(options=options, service=service)


BROWSERS = {"chromium": chromium, "firefox": firefox}

if __name__ == "__main__":
    sys.exit(main())
