"""Which proxies the suite is run against, and what becomes of the results.

CONFORMANCE names the proxies, with commas between, or is `all`; ours are the default. With CONFORMANCE_RESULTS, a file,
every result is added to it as a line of JSON, and only ours fail the run.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net.topology import Topology, topology
from conformance.adapters import ALL, Adapter

RESULTS = "CONFORMANCE_RESULTS"


class Proxy:
    """A proxy that runs on a path of its own."""

    def __init__(self, adapter: Adapter, path: Topology) -> None:
        self.adapter = adapter
        self.path = path


def chosen() -> list[str]:
    """The proxies that this run is for."""
    names = os.environ.get("CONFORMANCE", "")
    if names == "all":
        return list(ALL)
    return [name for name in names.split(",") if name] or [name for name, adapter in ALL.items() if adapter.ours]


@pytest.fixture(scope="module", params=chosen())
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy on a path of plain cables."""
    adapter = ALL[request.param]()
    with topology(tmp_path_factory.mktemp("path")) as path:
        adapter.start(path)
        yield Proxy(adapter, path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a proxy is not for: it is no result, of it or of this run."""
    left_out = [item for item in items if isinstance(item, pytest.Function) and not _is_for(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_for(item: pytest.Function) -> bool:
    name = str(item.callspec.params.get("proxy", "")) if hasattr(item, "callspec") else ""
    if name not in ALL:
        return True
    adapter = ALL[name]
    match item.path.stem, item.originalname:
        case "test_udp", "test_ipv6":
            return adapter.udp and adapter.ipv6
        case "test_udp", _:
            return bool(adapter.udp)
        case "test_names", _:
            return adapter.udp or adapter.resolver is not None
        case _, "test_ipv6":
            return bool(adapter.ipv6)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write results down; what another's proxy does not keep is a result, not a failure of this run."""
    report = yield
    file = os.environ.get(RESULTS)
    if file is None or not isinstance(item, pytest.Function) or (call.when != "call" and report.passed):
        return report
    name = str(item.callspec.params["proxy"])
    result: dict[str, str] = {
        "proxy": name,
        "property": (item.function.__doc__ or item.name).partition("\n")[0].rstrip("."),
        "outcome": report.outcome,
        "why": str(call.excinfo.value).partition("\n")[0][:200] if call.excinfo else "",
    }
    with Path(file).open("a") as results:
        results.write(json.dumps(result) + "\n")
    if report.failed and not ALL[name].ours:
        report.outcome = "skipped"
        report.wasxfail = result["why"]
    return report
