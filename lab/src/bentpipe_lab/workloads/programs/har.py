"""A HAR 1.2 archive of one page load, from the browser's navigation and resource timings."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

PROTOCOLS = {"HTTP/1.1": "http/1.1", "HTTP/2": "h2", "HTTP/3": "h3"}
"""As `nextHopProtocol` has them (ALPN)."""
VERSIONS = {protocol: version for version, protocol in PROTOCOLS.items()}


def of(seen: Mapping[str, Any], url: str, written: datetime) -> dict[str, Any]:
    """The archive of what `browse` saw; times before the load are not known to the millisecond."""
    navigation = seen["navigation"]
    begun = written - timedelta(milliseconds=navigation["loadEventEnd"] or navigation["duration"])
    entries = [dict(navigation, name=url), *seen["resources"]]
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "bentpipe-lab", "version": "1"},
            "browser": {"name": seen["agent"], "version": ""},
            "pages": [
                {
                    "startedDateTime": begun.isoformat(),
                    "id": "page",
                    "title": url,
                    "pageTimings": {
                        "onContentLoad": navigation["domContentLoadedEventStart"],
                        "onLoad": navigation["loadEventStart"],
                    },
                }
            ],
            "entries": [_entry(each, begun) for each in sorted(entries, key=lambda each: each["startTime"])],
        }
    }


def _entry(each: Mapping[str, Any], begun: datetime) -> dict[str, Any]:
    version = VERSIONS.get(each["nextHopProtocol"], each["nextHopProtocol"] or "unknown")
    timings = {
        "blocked": _between(each, "startTime", "domainLookupStart"),
        "dns": _between(each, "domainLookupStart", "domainLookupEnd"),
        "connect": _between(each, "connectStart", "connectEnd"),
        "ssl": _between(each, "secureConnectionStart", "connectEnd"),
        "send": 0,
        "wait": max(0, _between(each, "requestStart", "responseStart")),
        "receive": max(0, _between(each, "responseStart", "responseEnd")),
    }
    return {
        "pageref": "page",
        "startedDateTime": (begun + timedelta(milliseconds=each["startTime"])).isoformat(),
        "time": each["responseEnd"] - each["startTime"],
        "request": {
            "method": "GET", "url": each["name"], "httpVersion": version, "cookies": [], "headers": [],
            "queryString": [], "headersSize": -1, "bodySize": 0,
        },
        "response": {
            "status": each.get("responseStatus", 200), "statusText": "", "httpVersion": version, "cookies": [],
            "headers": [], "redirectURL": "", "headersSize": -1, "bodySize": each["encodedBodySize"],
            "content": {"size": each["decodedBodySize"], "mimeType": each.get("contentType", "")},
        },
        "cache": {},
        "timings": timings,
    }  # fmt: skip


def _between(each: Mapping[str, Any], first: str, last: str) -> float:
    """Milliseconds; -1, as HAR has it, where one of both is not known."""
    begin, end = each.get(first) or 0, each.get(last) or 0
    return -1 if not end or (not begin and first != "startTime") else float(end - begin)
