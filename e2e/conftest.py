"""Paths with a tunnel for the tests: one shared by a module for what leaves it whole, a fresh one otherwise.

No test fails because something took long, only because it stalled: every wait ends with what is waited for,
or with patience that is many times what a loaded machine needs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import Topology, topology
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe

SHORT = Path(__file__).parent / "short.toml"


def pytest_sessionstart() -> None:
    host.require(("ip", "nft", "nsenter", "nginx", "curl", "openssl"))
    host.clean_leftovers()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In continuous integration a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module")
def tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bentpipe]:
    """A tunnel shared by the tests of a module; they leave it as they found it."""
    with topology(tmp_path_factory.mktemp("path"), SHORT) as path:
        yield start_bentpipe(path)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    """A path without a tunnel."""
    with topology(tmp_path, SHORT) as built:
        yield built


@pytest.fixture
def own_tunnel(path: Topology) -> Bentpipe:
    """A tunnel which the test may break."""
    return start_bentpipe(path)
