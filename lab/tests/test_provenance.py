"""What is kept of the circumstances of a run."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bentpipe_lab.campaign import provenance
from bentpipe_lab.campaign.provenance import Watch, of_run, processor_waits_s


def test_how_long_a_run_took_does_not_depend_on_the_machine_s_clock_being_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class SetBack(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "SetBack":
            del tz
            return cls(1999, 12, 31, tzinfo=UTC)

    watch = Watch()
    monkeypatch.setattr(provenance, "datetime", SetBack)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    time.sleep(0.01)
    took = of_run(watch, ["true"])["took_s"]
    assert 0.01 <= took < 60


def test_how_long_programs_waited_for_a_processor_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "cpu"
    told.write_text("some avg10=4.82 avg60=5.11 avg300=2.23 total=9000000\nfull avg10=0.00 total=7\n")
    assert processor_waits_s(told) == 9.0
    assert processor_waits_s(tmp_path / "none") is None
    waits = iter([9.0, 10.5])
    monkeypatch.setattr(provenance, "processor_waits_s", lambda: next(waits))
    watch = Watch(waited_before_s=provenance.processor_waits_s(), monotonic_s=time.monotonic() - 3)
    assert of_run(watch, ["true"])["processor_wait"] == pytest.approx(0.5, rel=0.01)
