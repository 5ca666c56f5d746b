from collections.abc import Iterator

import pytest
from selenium import webdriver

from bentpipe_lab.net.link import Direction, Link
from screens import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium without a screen."""
    driver = chromium()
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def geo() -> Link:
    """GEO as the transport notes compute it: 20/2 Mbit/s, 600 ms, 1500 bytes on the wire for 1437."""
    return Link(
        name="geo",
        title="GEO",
        source="the notes' own table",
        forward=Direction(20e6, 0.3, 0.0, 8 * 1500 / 1437 / 20e6),
        back=Direction(2e6, 0.3, 0.0, 8 * 1500 / 1437 / 2e6),
        satellite_rtt_s=0.6,
        ground_rtt_s=0.0,
        first_byte_s=0.6,
    )
