"""The table of results: a row a property, a column a proxy. `python -m conformance.table RESULTS DOCUMENT`."""

import json
import sys
from pathlib import Path

from conformance.adapters import ALL
from conformance.test_tcp import SHORT_CONNECTIONS
from conformance.test_udp import MAPPINGS

HEAD = """# Conformance

What applications are owed by any proxy, and which of it a proxy keeps, on plain cables between network namespaces.
Written by `make conformance`, which runs `e2e/conformance/`; ours are part of `make test` as well. A proxy is added by
an adapter of a few lines in `e2e/conformance/adapters.py`. `n of m` where a property has several cases; `-` where the
adapter is not for it. socat and nginx relay one TCP target at a time; sing-box and Hysteria 2 are adapted for IPv4;
of Hysteria 2 this is the core, in the lab's own small program (`lab/programs/hysteria`), whose part is not told apart.

"""


def main(results: str, document: str) -> None:
    """Read results, write the document."""
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    properties = list(dict.fromkeys(line["property"] for line in lines))
    proxies = [name for name in ALL if any(line["proxy"] == name for line in lines)]
    failures: list[str] = []
    rows = [f"| | {' | '.join(proxies)} |", f"|---|{'---|' * len(proxies)}"]
    for name in properties:
        cells = []
        for proxy in proxies:
            found = [line for line in lines if (line["proxy"], line["property"]) == (proxy, name)]
            cells.append(_cell(found))
            why = sorted({line["why"] for line in found if line["outcome"] == "failed" and line["why"]})
            failures.extend(f"- {proxy}: {name}: `{reason}`" for reason in why)
        rows.append(f"| {name} | {' | '.join(cells)} |")
    notes = ["", "What was seen where a property was not kept:", "", *failures] if failures else []
    counted = f"In this run: {SHORT_CONNECTIONS} short connections, {MAPPINGS} sockets.\n\n"
    Path(document).write_text(HEAD + counted + "\n".join([*rows, *notes]) + "\n")


def _cell(found: list[dict[str, str]]) -> str:
    ran = [line for line in found if line["outcome"] != "skipped"]
    kept = sum(line["outcome"] == "passed" for line in ran)
    if not ran:
        return "-"
    if len(ran) == 1:
        return "kept" if kept else "**not kept**"
    return f"kept ({kept} of {len(ran)})" if kept == len(ran) else f"**{kept} of {len(ran)}**"


if __name__ == "__main__":
    main(*sys.argv[1:])
