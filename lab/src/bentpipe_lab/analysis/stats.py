"""From samples to rows: the median of the runs that ended well, and how many of all runs those were."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bentpipe_lab.records.sample import Sample
from bentpipe_lab.records.verdict import Verdict


@dataclass(frozen=True)
class Row:
    """One line of the result: a workload by a system over a scenario."""

    scenario: str
    system: str
    workload: str
    n_ok: int
    n_total: int
    median_s: float | None
    p95_s: float | None
    bound_s: float
    ratio_to_bound: float | None
    certificate_valid: bool
    """Whether the runs counted here had valid certificates; false when no run had."""

    def as_record(self) -> dict[str, Any]:
        """As it is written to `summary.json`."""
        return asdict(self)


def row(samples: Iterable[Sample], bound_s: float) -> Row:
    """Summarise the samples of one workload by one system over one scenario.

    A run in which the emulator was late says nothing of the system: such runs are left out, never averaged with
    the others. Where there are no others, they are all there is to show, and the row says so.
    """
    samples = list(samples)
    (key,) = {(sample.scenario, sample.system, sample.workload) for sample in samples}
    punctual = [sample for sample in samples if sample.outcome.verdict is not Verdict.EMULATOR_LATE]
    good = Verdict.OK if punctual else Verdict.EMULATOR_LATE
    samples = punctual or samples
    times = [sample.outcome.seconds for sample in samples if sample.outcome.verdict is good]
    seconds = np.array([time for time in times if time is not None])
    median, p95 = (float(q) for q in np.quantile(seconds, [0.5, 0.95])) if seconds.size else (None, None)
    return Row(
        *key,
        n_ok=int(seconds.size),
        n_total=len(samples),
        median_s=_rounded(median),
        p95_s=_rounded(p95),
        bound_s=round(bound_s, 4),
        ratio_to_bound=None if median is None else round(median / bound_s, 4),
        certificate_valid=bool(punctual),
    )


def failures(samples: Iterable[Sample]) -> Counter[tuple[str, str]]:
    """How often each (verdict, detail) occurred among the runs that did not end well."""
    return Counter(
        (str(sample.outcome.verdict), sample.outcome.detail)
        for sample in samples
        if sample.outcome.verdict is not Verdict.OK
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
