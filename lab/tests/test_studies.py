"""The studies: reading records, comparing with what was published, and the report."""

import json
from pathlib import Path

import pytest

from bentpipe_lab.errors import LabError
from bentpipe_lab.records import published
from bentpipe_lab.studies import bujari, endres, kuhn, qpep, records, run
from bentpipe_lab.studies.records import FlowSample, Run
from bentpipe_lab.studies.section import Cell, Section, Table, markdown


def steady(mbit_s: float, rtt_ms: float, begin_s: float, end_s: float, before: int = 0) -> list[FlowSample]:
    """Looks every 100 ms at a flow that gets the same all the time."""
    count = round((end_s - begin_s) * 10)
    return [
        FlowSample(begin_s + step / 10, 0, before + int(mbit_s * 1e6 / 8 * step / 10), rtt_ms)
        for step in range(1, count + 1)
    ]


def handover(first: tuple[float, float], second: tuple[float, float]) -> list[FlowSample]:
    """90 s of the one, 90 s of the other."""
    samples = steady(*first, 0, 90)
    return samples + steady(*second, 90, 180, samples[-1].arrived_udp)


def test_a_leg_is_what_arrived_and_waited_on_it() -> None:
    first, second = bujari.legs(Run({}, 1, samples=handover((9.0, 80.0), (5.0, 130.0))))
    assert first.goodput_mbit_s == pytest.approx(9.0, rel=1e-4)
    assert second.goodput_mbit_s == pytest.approx(5.0, rel=1e-4)
    assert (first.rtt_ms, second.rtt_ms) == (80.0, 130.0)
    assert first.goodput_sd_mbit_s == pytest.approx(0.0, abs=1e-3)


def test_a_comparison_allows_5_and_10_percent() -> None:
    axes = {"case": "one", "flow.controller": "newreno"}  # published: 9.65 and 93.42, 9.35 and 144.64

    def within(first: tuple[float, float]) -> bool | None:
        return bujari.compare([Run(axes, 1, samples=handover(first, (9.35, 144.64)))])[0].within

    assert within((9.65 * 1.049, 93.42 * 1.09))
    assert not within((9.65 * 1.051, 93.42))
    assert not within((9.65 * 0.949, 93.42))
    assert not within((9.65, 93.42 * 1.11))
    assert not within((9.65, 93.42 * 0.89))


def test_a_comparison_takes_the_median_of_the_seeds_and_leaves_out_what_was_not_published() -> None:
    axes = {"case": "one", "flow.controller": "satellite"}
    runs = [Run(axes, seed, samples=handover((rate, 60.0), (9.0, 120.0))) for seed, rate in enumerate((1.0, 8.0, 9.0))]
    first, _ = bujari.compare(runs)
    assert first.ours.goodput_mbit_s == pytest.approx(8.0, rel=1e-4)
    assert (first.theirs, first.within) == (None, None)


def test_what_was_published_is_whole() -> None:
    rows = published.table("bujari")
    assert len({(row["queue"], row["controller"], row["leg"]) for row in rows}) == 16
    assert "Tables 2" in published.source("bujari")
    assert {row["case"] for row in published.table("endres")} == {"SAT", "SATLOSS"}
    assert len(published.table("kuhn")) == 27


def test_their_packets_are_counted() -> None:
    """No stream gets 9.77 Mbit/s through 10 Mbit/s at the IP level; 1200-byte datagrams do, to the hundredth."""
    most = max(float(row["goodput_mbit_s"]) for row in published.table("bujari"))
    assert most == pytest.approx(bujari.CAPACITY_MBIT_S, abs=0.005)


def transfer(begun_s: float, megabytes: int, done_s: float | None) -> dict[str, int | None]:
    return {
        "begun_ns": int(begun_s * 1e9),
        "done_ns": None if done_s is None else int(done_s * 1e9),
        "bytes": megabytes * kuhn.MB,
        "received": megabytes * kuhn.MB,
    }


def test_a_target_counts_from_the_beginning_of_the_last_transfer() -> None:
    first = [FlowSample(at, int(at * 2 * kuhn.MB), 0, 650.0) for at in range(1, 51)]
    second = [FlowSample(55.0 + at, (100 + 2 * at) * kuhn.MB, 0, 650.0) for at in range(1, 51)]
    again = Run({}, 1, [transfer(0, 100, 50.0), transfer(55.0, 100, 104.5)], first + second)
    assert kuhn.reached_s(again, 2) == pytest.approx(1.0)
    assert kuhn.reached_s(again, 10) == pytest.approx(5.0)
    assert kuhn.reached_s(again, 100) == pytest.approx(49.5)
    cut = Run({}, 1, [transfer(0, 100, None)], first[:20])
    assert kuhn.reached_s(cut, 10) == 5.0
    assert kuhn.reached_s(cut, 100) is None


def test_a_target_can_lie_at_the_bound() -> None:
    """2 MB over 10 Mbit/s and 650 ms: two round trips and 1.67 s on the wire, against a target of 3 s."""
    small = kuhn.bound(2, 10, 0.65, 0.0, 32, again=False)
    assert small.physics_s == pytest.approx(2.97, abs=0.005)
    again = kuhn.bound(2, 10, 0.65, 0.5, 32, again=True)
    assert again.physics_s == again.start_s == pytest.approx(0.65 + 2 * 1.67, abs=0.005)


def test_who_knows_nothing_waits_for_the_first_acknowledgement() -> None:
    """32 packets take 38.4 ms of the first 650 ms at 10 Mbit/s; a window that fills the round trip costs nothing."""
    small = kuhn.bound(2, 10, 0.65, 0.0, 32, again=False)
    assert small.start_s - small.physics_s == pytest.approx(0.65 - 0.0384)
    full = kuhn.bound(2, 10, 0.65, 0.0, 542, again=False)
    assert full.start_s == full.physics_s


def test_a_missed_target_says_whether_it_could_be_kept() -> None:
    bound = kuhn.Bound(physics_s=2.0, start_s=2.6)
    assert kuhn.why(1.9, bound, 3.0) == "nobody can: less than physics allows"
    assert kuhn.why(2.5, bound, 3.0).startswith("not from that window: 0.10 s short")
    assert kuhn.why(2.7, bound, 3.0) == "reachable; missed by 0.30 s"
    assert kuhn.why(2.7, bound, None) == "reachable; not reached"


def test_endres_counts_from_the_first_byte() -> None:
    whole = {"first_byte_ns": 1_200_000_000, "done_ns": 1_200_000_000 + 8_388_608_000}
    assert endres.goodput_mbit_s(Run({}, 1, [whole])) == pytest.approx(10.0)
    assert endres.goodput_mbit_s(Run({}, 1, [{**whole, "done_ns": None}])) == 0.0


def test_a_percentage_is_a_share() -> None:
    assert qpep.loss_rate("0.00001 %") == pytest.approx(1e-7)


def test_records_are_read_run_by_run(tmp_path: Path) -> None:
    sample = {
        "record": "sample",
        "at_ns": 10**9,
        "flow": 0,
        "received": 5,
        "arrived_udp_bytes": 7,
        "rtt_ns": 60_000_000,
    }
    lines = [
        {"schema": "bentpipe/records/1"},
        {"run": {"axes": {"case": "a"}, "seed": 1}},
        sample,
        {**sample, "flow": 1},
        {"record": "flow", "flow": 0, "lost": 3},
        {"run": {"axes": {"case": "a"}, "seed": 2, "failed": "it panicked"}},
        {"run": {"axes": {"case": "a"}, "seed": 3}},
        {"record": "link", "link": 0},
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    one, three = records.runs(tmp_path)
    assert (one.seed, three.seed) == (1, 3)
    assert one.samples == [FlowSample(1.0, 5, 7, 60.0)]
    assert one.flow["lost"] == 3
    assert len(three.links) == 1


def test_missing_records_say_how_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"summary.json is not there; `bentpipe sim PLAN --out"):
        records.lines(tmp_path)


def test_the_report_has_every_table_and_nothing_of_it_is_markup(tmp_path: Path) -> None:
    table = Table("Times", ["case", "ours"], [["<b>one</b>", Cell("1.00", "within")]])
    section = Section("A study", "somebody, 2020", ["It went well."], [table])
    run.write(tmp_path, [section])
    page = (tmp_path / run.REPORT).read_text()
    assert '<td class="within">1.00</td>' in page
    assert "&lt;b&gt;one" in page
    assert "| <b>one</b> | 1.00 |" in markdown(section)
    assert "## A study" in (tmp_path / run.TABLES).read_text()


def test_every_study_has_its_campaigns() -> None:
    for campaigns, _ in run.STUDIES.values():
        for campaign in campaigns:
            assert (run.CAMPAIGNS / f"{campaign}.toml").exists(), campaign
