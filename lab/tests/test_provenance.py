"""What is kept of the circumstances of a run."""

import time
from datetime import UTC, datetime

import pytest

from bentpipe_lab.campaign import provenance
from bentpipe_lab.campaign.provenance import Watch, of_run


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
