"""Samples to make results of."""

from bentpipe_lab.records.sample import Outcome, Sample
from bentpipe_lab.records.verdict import Verdict


def sample(seconds: float | None, verdict: Verdict = Verdict.OK, system: str = "bentpipe", index: int = 0) -> Sample:
    return Sample("geo", system, "first byte", index, Outcome(verdict, seconds))
