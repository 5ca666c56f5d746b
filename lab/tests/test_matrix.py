"""The matrix's manifests, requests, tables and site, from runs that are made up."""

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from bentpipe_lab.campaign import directory, plan, points, schedule
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import LabError, PlanError, UnknownNameError
from bentpipe_lab.matrix import cell, commands, competing, link_records, packet_data, site, table
from bentpipe_lab.records import tables
from bentpipe_lab.stacks import cache, manifest
from bentpipe_lab.workloads import WORKLOADS
from test_campaign_report import put

TEXT = """\
name = "made-up"
source = "<script>alert('nobody')</script>"
clock = "real"
repetitions = 3
[axes]
system = "direct"
workload = "quic download"
"workload.client" = ["quic-go", "quinn", "aioquic", "curl"]
"workload.server" = ["quic-go", "quinn", "go-x-net"]
"workload.windows" = ["as shipped", "tuned"]
[[case]]
name = "SAT"
scenario = "qir-sat"
"workload.limit" = "120 s"
[[case]]
name = "SATLOSS"
scenario = "qir-satloss"
"workload.limit" = "360 s"
"""
WIDTHS = (1280, 390)


def made_up(where: Path) -> directory.Campaign:
    its_plan = plan.parse(TEXT, where.parent)
    campaign = directory.begin(its_plan, points.expand(its_plan), where, None)
    for place, point in enumerate(campaign.points()):
        rate = 2e6 + 1e6 * ("quinn" in point["id"]) + 1e5 * place
        for repetition in range(1, 4):
            run = Run(point["id"], repetition, 1)
            metrics = {"goodput_whole_bit_s": rate + 1e4 * repetition, "handshake_s": 0.6}
            verdict, detail = "ok", ""
            if point["axes"]["workload.server"] == "go-x-net" and point["axes"]["workload.client"] == "curl":
                verdict, detail, metrics = "unsupported", "curl and go-x-net have no protocol in common", {}
            elif place == 0 and repetition == 2:
                verdict, detail = "server died", "the server ended with 139: <b>Segmentation fault</b>"
            elif place == 1:
                verdict, detail = "emulator late", "p99.9 is 4 ms"
            put(campaign.store, point, run, verdict, detail, 30.0, 3)
            campaign.store.put(run, {"server.log": "the last line <script>"})
            result = campaign.store.result(run)
            campaign.store.put(run, {"result.json": json.dumps({**result, "metrics": metrics})})
    return campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> directory.Campaign:
    return made_up(tmp_path_factory.mktemp("matrix") / "campaign")


def test_every_implementation_keeps_the_contract() -> None:
    found = manifest.all_manifests()
    assert len({each.stack for each in found.values()}) >= 8
    for each in found.values():
        for script in (manifest.INSTALL, manifest.RUN):
            assert os.access(each.directory / script, os.X_OK), f"{each.name}/{script}"
        text = (each.directory / manifest.RUN).read_text()
        honoured = text.split("honours", 1)[1].split("\n", 1)[0].split()
        assert set(honoured) == set(each.knobs), f"{each.name}: run_endpoint honours other knobs than its manifest says"
        assert "CC" not in each.knobs or each.controllers, each.name
        # Pinned by hash, or the system's own package.
        pins = [*each.directory.glob("*.lock"), *each.directory.glob("*.sha256"), *each.directory.glob("go.sum")]
        assert pins or "as the system has it" in each.provenance, each.name


def test_manifests_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "toy" / "manifest.toml"
    file.parent.mkdir()
    fields = {"name": "toy", "stack": "toy", "version": "1", "licence": "MIT", "language": "C", "from": "here"}
    good = "".join(f'{name} = "{value}"\n' for name, value in fields.items()) + 'roles = ["client"]\n'
    file.write_text(good)
    assert manifest.read(file).refuses("server", {}) == "toy is no server"
    assert "has no CC" in str(manifest.read(file).refuses("client", {"CC": "reno"}))
    for wrong, said in (
        (good.replace("toy", "tay", 1), "its directory is 'toy'"),
        (good.replace('version = "1"\n', ""), "version is missing"),
        (good + 'knobs = ["MAX_DATE"]', "MAX_DATA"),
        (good + "colour = 1", "colour"),
        (good.replace('["client"]', '"client"'), "another type"),
    ):
        file.write_text(wrong)
        with pytest.raises(LabError, match=said):
            manifest.read(file)


def test_a_pair_speaks_http3_where_both_do() -> None:
    known = manifest.all_manifests()
    assert manifest.common_protocol(known["quinn"], known["quic-go"]) == "h3"
    assert manifest.common_protocol(known["quinn"], known["go-x-net"]) == "hq-interop"
    assert manifest.common_protocol(known["curl"], known["go-x-net"]) is None


def test_windows_are_set_where_there_is_a_knob_and_the_controller_is_the_servers() -> None:
    request = cell.Request("aioquic", "quinn", "10MiB", 60, windows=cell.TUNED, controller="bbr", initial_window=32)
    wide = str(16 << 20)
    assert request.knobs(manifest.manifest("aioquic"), "client") == {"MAX_DATA": wide, "MAX_STREAM_DATA": wide}
    server = request.knobs(manifest.manifest("quinn"), "server")
    assert server == {"MAX_DATA": wide, "MAX_STREAM_DATA": wide, "SEND_BUFFER": wide, "CC": "bbr", "IW": "32"}
    same = cell.Request("quinn", "quinn", "10MiB", 60, controller="bbr")
    assert same.knobs(manifest.manifest("quinn"), "client") == {}


def test_plans_of_the_matrix_are_checked() -> None:
    for wrong, said in (
        ('"quinn", "go-x-net"', '"quinn", "go-x-nit"'),
        ('"aioquic", "curl"', '"aioquic", "envoy"'),
        ('"tuned"', '"tund"'),
        ("120 s", "120 h"),
    ):
        with pytest.raises((PlanError, UnknownNameError)):
            points.expand(plan.parse(TEXT.replace(wrong, said), Path()))
    ours = TEXT.replace("[axes]", '[axes]\n"workload.server_controller" = "bbr"')
    assert points.expand(plan.parse(ours, Path())).points[0].options["server_controller"] == "bbr"
    with pytest.raises(PlanError, match="has none"):
        points.expand(plan.parse(ours.replace("quic download", "first byte"), Path()))
    limits = {point.axes["case"]: point.options["limit"] for point in points.expand(plan.parse(TEXT, Path())).points}
    assert limits == {"SAT": "120 s", "SATLOSS": "360 s"}
    workload = WORKLOADS["quic download"].with_options({"limit": "6 min", "server_initial_window": "32"})
    assert workload.overhead_s > 360
    assert WORKLOADS["quic download"].overhead_s == 0


def test_all_first_repetitions_come_before_the_second_ones() -> None:
    order = "order = { shuffle = 1, rounds = true }\n[axes]"
    its_plan = plan.parse(TEXT.replace("[axes]", order), Path())
    found = points.expand(its_plan).points
    runs = [Run(point.id, repetition, 1) for point in found for repetition in (1, 2, 3)]
    units = schedule.units(its_plan, found, runs)
    order_of = [run.repetition for unit in units for run in unit.runs]
    assert order_of == sorted(order_of)
    assert len(order_of) == len(runs)
    assert [run.point for unit in units for run in unit.runs][: len(found)] != [point.id for point in found]
    with pytest.raises(PlanError, match="rounds"):
        plan.parse(TEXT.replace("[axes]", "order = { shuffle = 1, rounds = 2 }\n[axes]"), Path())


def test_what_a_competing_connection_carried_is_the_mean_of_its_seconds() -> None:
    seconds = [{"sum": {"bytes": 1_000_000, "seconds": 1.0}}, {"sum": {"bytes": 500_000, "seconds": 0.5}}]
    assert competing.carried_bit_s(json.dumps({"intervals": seconds})) == pytest.approx(8e6)
    assert competing.carried_bit_s('{"error": "unable to set TCP_CONGESTION"}') is None
    assert competing.carried_bit_s("") is None


def test_what_a_case_has_one_value_of_is_its_own() -> None:
    rows = [
        {"place": 0, "point": f"{case}{windows}", "repetition": 1, "attempt": 1, "verdict": "ok", "axis.case": case,
         "axis.workload.client": "quinn", "axis.workload.server": "quinn", "axis.workload.file": file,
         "axis.workload.windows": windows}
        for case, file in (("SAT", "10MiB"), ("CROSSTRAFFIC", "25MiB"))
        for windows in ("as shipped", "tuned")
    ]  # fmt: skip
    metrics = pl.DataFrame({"point": [""], "repetition": [1], "attempt": [1], "metric": [""], "value": [0.0]})
    found = table.runs(pl.DataFrame(rows), metrics)
    assert set(found["further"]) == {"as shipped", "tuned"}
    # They ended well, and nothing is known of their goodput: nobody wrote keys.
    cells = table.cells(found)
    assert [(each.n_ok, each.n, each.median_bit_s) for each in cells] == [(1, 1, None)] * 4


def test_names_stand_in_the_same_order_whatever_has_been_measured() -> None:
    pairs = [("quinn", "tquic"), ("aioquic", "tquic"), ("quinn", "curl")]
    cells = [table.Cell(f"{a}{b}", "SAT", a, b, "", 1, 1, 0, {"ok": 1}, [1.0]) for a, b in pairs]
    assert table.names(cells) == table.names(cells[::-1]) == (["aioquic", "quinn"], ["curl", "tquic"])


def test_failures_are_zeros_and_late_or_unsupported_runs_are_none(campaign: directory.Campaign) -> None:
    tables.write(campaign)
    runs = table.runs(tables.read(campaign.directory), tables.metrics(campaign.directory))
    cells = {each.point: each for each in table.cells(runs)}
    first, second = (cells[point["id"]] for point in campaign.points()[:2])
    assert (first.n_ok, first.n) == (2, 3)
    assert sorted(first.goodput_bit_s)[0] == 0.0
    assert (second.n, second.late, second.median_bit_s) == (0, 3, None)
    unsupported = [each for each in cells.values() if each.client == "curl" and each.server == "go-x-net"]
    assert all(each.n == 0 for each in unsupported)
    assert {each.case for each in cells.values()} == {"SAT", "SATLOSS"}
    assert {each.further for each in cells.values()} == {"as shipped", "tuned"}


def test_the_servers_share_is_one_where_the_server_decides_alone() -> None:
    def made(client: str, server: str, bits: float) -> table.Cell:
        return table.Cell(f"{client}{server}", "SAT", client, server, "", 1, 1, 0, {"ok": 1}, [bits])

    decided = [made(client, server, {"x": 1.0, "y": 5.0}[server]) for client in "abc" for server in "xy"]
    assert table.share_of_server(decided) == pytest.approx((1.0, 0.0))
    assert table.share_of_server(decided[:2]) is None


def test_one_cell_is_a_plan_of_its_own(campaign: directory.Campaign) -> None:
    for point in campaign.points()[:3]:
        alone = plan.parse(commands.only(campaign.plan, point["id"]), Path())
        assert [each.id for each in points.expand(alone).points] == [point["id"]]
    with pytest.raises(UnknownNameError):
        commands.only(campaign.plan, "no-such-cell")


def test_what_was_installed_in_another_version_is_not_installed(tmp_path: Path) -> None:
    each = manifest.manifest("quinn")
    assert cache.installation(tmp_path, each) is None
    state = tmp_path / each.name / cache.STATE
    state.parent.mkdir()
    state.write_text(f'{{"version": "{each.version}", "why": "", "took_s": 1.0, "wanted": "{each.version}"}}')
    found = cache.installation(tmp_path, each)
    assert found is not None
    assert found.version == each.version
    state.write_text('{"version": "0.1", "why": "", "took_s": 1.0, "wanted": "0.1"}')
    assert cache.installation(tmp_path, each) is None
    state.write_text("not JSON")
    assert cache.installation(tmp_path, each) is None


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium without a window."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


def test_the_site_is_whole_on_a_desk_and_on_a_phone(campaign: directory.Campaign, browser: webdriver.Chrome) -> None:
    page = site.write(campaign)
    for width in WIDTHS:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        maps = browser.find_elements(By.CSS_SELECTOR, "table.heat")
        assert len(maps) == 4
        links = {link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "table.heat a")}
        assert len(links) == len(campaign.points())
        for link in sorted(filter(None, links))[:: len(links) // 3]:
            browser.get(link)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            assert "runs ended well" in browser.find_element(By.TAG_NAME, "main").text
            back = browser.find_element(By.CSS_SELECTOR, "nav a").get_attribute("href")
            assert back == page.as_uri()
    first = campaign.points()[0]["id"]
    text = (page.parent / "cells" / f"{first}.html").read_text()
    assert "&lt;b&gt;Segmentation fault" in text
    assert f"--cell {first}" in text
    assert pl.read_csv(page.parent / "data" / "cells.csv").height == len(campaign.points())
    ends = pl.read_csv(page.parent / "data" / "ends.csv")
    quinn = ends.filter(pl.col("role") == "server", pl.col("name") == "quinn", pl.col("case") == "SAT").to_dicts()[0]
    assert (quinn["pairs"], quinn["n_ok"], quinn["n"]) == (4, 12, 12)
    assert quinn["least_mbit_s"] <= quinn["median_mbit_s"] <= quinn["most_mbit_s"]
    assert (page.parent / "data" / "relation-sat-as-shipped-satloss-as-shipped.csv").exists()


def test_a_hundred_thousand_packets_can_be_zoomed_into(tmp_path: Path, browser: webdriver.Chrome) -> None:
    count, begun = 100_000, 1_700_000_000_000_000_000
    at = [begun + 100_000 * place for place in range(count)]
    pl.DataFrame({"time_ns": at[:1], "protocol": ["quic"]}).write_parquet(tmp_path / "client-packets.parquet")
    pl.DataFrame(
        {"time_ns": at, "from_client": False, "stream": 0, "offset": [1200 * place for place in range(count)],
         "length": 1200, "repeated": [1200 * (place % 1000 == 7) for place in range(count)], "protocol": "quic"}
    ).write_parquet(tmp_path / "server-streams.parquet")  # fmt: skip
    pl.DataFrame(
        {"time_ns": at, "direction": "forward", "queue_bytes": [place % 37_500 for place in range(count)],
         "fate": ["queue full" if place % 5000 == 9 else "delivered" for place in range(count)]}
    ).write_parquet(tmp_path / "link.parquet")  # fmt: skip
    script = packet_data.script(tmp_path, "run")
    assert script is not None
    (tmp_path / "run.js").write_text(script)
    viewer = files("bentpipe_lab.matrix") / "templates" / site.VIEWER
    (tmp_path / site.VIEWER).write_text(viewer.read_text())
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><body><div><button data-packets="run">Packets</button></div><script src="packets.js"></script>'
    )
    browser.get(page.as_uri())
    browser.find_element(By.CSS_SELECTOR, "button").click()
    canvas = WebDriverWait(browser, 60).until(lambda found: found.find_element(By.CSS_SELECTOR, "canvas[data-drawn]"))

    def shown() -> tuple[float, float, int]:
        told = [canvas.get_attribute(f"data-{name}") for name in ("from", "to", "drawn")]
        return float(told[0] or 0), float(told[1] or 0), int(told[2] or 0)

    assert shown()[0] == 0
    assert shown()[1] == pytest.approx(10, rel=1e-3)
    assert shown()[2] > 1000
    zoom = browser.find_element(By.CSS_SELECTOR, "button[title='zoom in']")
    for _ in range(10):
        zoom.click()
    begin, end, drawn = shown()
    # A thousandth of the run: about a hundred packets, and what each found in the queue.
    assert end - begin == pytest.approx(10 / 1024, rel=1e-3)
    assert 150 <= drawn <= 250
    browser.find_element(By.CSS_SELECTOR, "button[title='whole run']").click()
    assert shown()[1] == pytest.approx(10, rel=1e-3)


def test_what_the_emulator_wrote_down_is_read_from_a_moment_on(tmp_path: Path) -> None:
    record = [["entered_ns", "<u8"], ["left_ns", "<u8"], ["late_ns", "<u4"], ["queue_bytes", "<u4"], ["length", "<u2"],
              ["direction", "<u2"], ["fate", "<u2"]]  # fmt: skip
    header = {
        "begun_ns": 1000, "record": record, "fates": ["delivered", "unwritten", "queue full"],
        "directions": [{"link": "satellite", "name": "forward"}, {"link": "satellite", "name": "return"},
                       {"link": "ground", "name": "forward"}],
    }  # fmt: skip
    packets = np.array(
        [
            (5, 9, 0, 0, 100, 0, 0),
            (20, 29, 0, 1500, 1400, 1, 2),
            (25, 29, 0, 0, 1400, 2, 0),
            (30, 39, 0, 3000, 40, 0, 0),
        ],
        dtype=[(name, kind) for name, kind in record],
    )
    file = tmp_path / "records.bin"
    file.write_bytes(json.dumps(header).encode() + b"\n" + packets.tobytes() + b"half a record")
    assert link_records.since(file, 1020).rows() == [
        (1020, "return", 1500, 1400, "queue full"), (1030, "forward", 3000, 40, "delivered")
    ]  # fmt: skip
