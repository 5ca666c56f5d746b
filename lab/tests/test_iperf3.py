"""iperf3's report, as an outcome."""

import json
from typing import Any

import pytest

from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.iperf3 import judged, received_by, to_plateau


def report(rates: list[int]) -> dict[str, Any]:
    received = [{"sum": {"end": (place + 1) / 10, "bytes": rate}} for place, rate in enumerate(rates)]
    sent = [
        {"sum": {"end": place / 10 + 0.11}, "streams": [{"snd_cwnd": 14_480, "rtt": 600_000, "retransmits": 1}]}
        for place, _ in enumerate(rates)
    ]
    return {
        "intervals": received,
        "server_output_json": {"intervals": sent},
        "end": {"sum_sent": {"retransmits": len(rates)}},
    }


def test_a_report_has_goodput_at_the_receiver_and_the_window_of_the_sender() -> None:
    outcome = judged(json.dumps(report([0] * 10 + [10_000] * 40)), "", 0, download=True)
    assert outcome.verdict is Verdict.OK
    assert (outcome.seconds, outcome.bytes_received) == (5.0, 400_000)
    assert outcome.metrics["goodput_mbit_s"] == pytest.approx(0.64)
    assert outcome.metrics["retransmitted_packets"] == 50
    assert outcome.metrics["mean_rtt_s"] == pytest.approx(0.6)
    assert outcome.samples[0] == {
        "at_s": 0.1, "received_bytes": 0, "window_bytes": 14_480, "rtt_s": 0.6, "retransmitted_packets": 1,
    }  # fmt: skip
    assert outcome.metrics["to_90_percent_s"] == 1.9


def test_several_connections_have_the_sum_of_their_windows() -> None:
    told = report([10_000] * 20)
    streams = [{"snd_cwnd": 10_000, "rtt": 500_000, "retransmits": 0}, {"snd_cwnd": 20_000, "rtt": 700_000}]
    told["server_output_json"]["intervals"] = [{"sum": {"end": second}, "streams": streams} for second in (1.0, 2.0)]
    samples = judged(json.dumps(told), "", 0, download=True).samples
    # The sender looked once a second.
    assert [row["at_s"] for row in samples if "window_bytes" in row] == [1.0, 2.0]
    row = samples[9]
    assert (row["window_bytes"], row["rtt_s"], row["retransmitted_packets"]) == (30_000, pytest.approx(0.6), 0)


def test_what_iperf3_says_of_its_failure_is_the_verdict() -> None:
    said = json.dumps({"error": "unable to connect to server: Connection refused", "intervals": []})
    assert judged(said, "", 1, download=True).verdict is Verdict.REFUSED
    assert judged("", "iperf3: no such thing", 1, download=True).verdict is Verdict.FAILED
    assert judged(json.dumps(report([])), "", 0, download=True).verdict is Verdict.TIMED_OUT


def test_a_transfer_at_its_full_rate_from_the_beginning_is_there_after_a_second() -> None:
    samples = [{"at_s": place / 10, "received_bytes": 1000 * place} for place in range(1, 51)]
    assert to_plateau(samples) == 1.0


def test_samples_that_come_a_little_late_do_not_shift_what_had_arrived() -> None:
    samples = [{"at_s": place * 1.001, "received_bytes": 1000 * place} for place in range(1, 16)]
    assert received_by(samples, 10.0) == pytest.approx(10_000 / 1.001)
    assert samples[-1]["received_bytes"] - received_by(samples, 14.015) == pytest.approx(1000 / 1.001)
    assert received_by([], 10.0) == 0
