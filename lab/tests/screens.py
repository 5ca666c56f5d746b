"""A page in headless Chromium, on the screens that it has to fit."""

from pathlib import Path

from selenium import webdriver

WIDTHS = (1280, 390)


def chromium() -> webdriver.Chrome:
    """A browser whose log is kept."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def show(browser: webdriver.Chrome, page: Path, width: int) -> None:
    """Open a page on a screen of that width; it neither overflows it nor has an error in a script."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.absolute().as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return innerWidth") == width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter((e) => {"
        "  for (let at = e; at; at = at.parentElement) {"
        "    if (at !== e && getComputedStyle(at).overflowX === 'auto') return false;"
        "    if (at.matches('svg, details, script, style')) return false;"
        "  }"
        "  return e.getBoundingClientRect().right > innerWidth + 1;"
        "}).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    log: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert [entry for entry in log if entry["level"] == "SEVERE"] == []
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('svg')].filter((e) => !e.closest('svg svg')"
        " && !(e.getAttribute('role') === 'img' && e.getAttribute('aria-label'))).length"
    )
    assert unnamed == 0, "drawings without an alternative text"
