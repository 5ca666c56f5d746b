"""Statistics of runs, by scipy: medians with intervals, censored distributions, comparisons of two samples."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

CONFIDENCE = 0.95
RESAMPLES = 2000
LEAST_OF_AN_INTERVAL = 5
"""The range of fewer values covers the median in less than nine cases of ten: 87 % for four, 75 % for three."""
SEED = 1
"""Of the bootstrap: the same runs give the same interval."""


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % interval, in the unit of the values."""

    n: int
    median: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether there is an interval: one value has none."""
        return self.n > 1

    @property
    def width_of_median(self) -> float:
        """The interval's width as a share of the median; infinite for so few values that it is none of 95 %."""
        if self.n < LEAST_OF_AN_INTERVAL:
            return float("inf")
        return (self.high - self.low) / self.median if self.median else float("inf")


def median_interval(values: Sequence[float]) -> Interval:
    """The median and its bootstrap interval (percentiles of resampled medians); of one value, the value itself."""
    data = np.asarray(values, dtype=np.float64)
    median = float(np.median(data))
    if data.size < 2 or np.all(data == data[0]):
        return Interval(int(data.size), median, median, median)
    found = scipy.stats.bootstrap(
        (data,), np.median, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method="percentile", vectorized=True,
        rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    # Percentiles between two values may be rounded to beyond both.
    low, high = np.clip([found.low, found.high], data.min(), data.max())
    return Interval(int(data.size), median, float(low), float(high))


@dataclass(frozen=True)
class Band:
    """Medians of many columns, each with its 95 % interval."""

    median: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


BAND_RESAMPLES = 500
"""Of each column of a band: a figure has hundreds."""


def median_band(runs: npt.NDArray[np.float64]) -> Band:
    """Of the columns of a table with a row per run; of one run, the run itself."""
    median = np.median(runs, axis=0)
    if len(runs) < 2:
        return Band(median, median, median)
    found = scipy.stats.bootstrap(
        (runs,), np.median, confidence_level=CONFIDENCE, n_resamples=BAND_RESAMPLES, method="percentile", axis=0,
        vectorized=True, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Band(median, np.asarray(found.low), np.asarray(found.high))


def ratio_band(reference: npt.NDArray[np.float64], runs: npt.NDArray[np.float64]) -> Band:
    """Medians of the columns of `runs` as multiples of those of `reference`, whose values are all above zero."""
    median = np.median(runs, axis=0) / np.median(reference, axis=0)
    if len(runs) < 2 or len(reference) < 2:
        return Band(median, median, median)
    found = scipy.stats.bootstrap(
        (runs, reference), lambda ours, theirs, axis: np.median(ours, axis=axis) / np.median(theirs, axis=axis),
        confidence_level=CONFIDENCE, n_resamples=BAND_RESAMPLES, method="percentile", axis=0, vectorized=True,
        paired=False, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Band(median, np.asarray(found.low), np.asarray(found.high))


@dataclass(frozen=True)
class Distribution:
    """A share of runs that were done by a time; runs that did not end well are censored at their limit."""

    times: Sequence[float]
    shares: Sequence[float]


def distribution(done: Sequence[float], censored: Sequence[float]) -> Distribution:
    """The distribution of times, Kaplan and Meier's where runs were cut off at `censored` times."""
    if not done:
        return Distribution([], [])
    data: scipy.stats.CensoredData[np.float64] = scipy.stats.CensoredData(uncensored=list(done), right=list(censored))
    found = scipy.stats.ecdf(data).cdf
    quantiles = np.asarray(found.quantiles, dtype=np.float64)
    shares = np.asarray(found.probabilities, dtype=np.float64)
    at_ends = np.isin(quantiles, np.asarray(done, dtype=np.float64))
    return Distribution(quantiles[at_ends].tolist(), shares[at_ends].tolist())


@dataclass(frozen=True)
class Comparison:
    """Two samples beside each other."""

    n: tuple[int, int]
    ratio: float
    """The second's median as a multiple of the first's."""
    welch_p: float | None
    """Welch's test of the means of what is known; None where a sample is too small or has no spread."""
    mann_whitney_p: float | None
    """Of the ranks, those that failed last."""
    effect: float
    """Cliff's delta: how much likelier a value of the second is larger than one of the first than smaller, -1 to 1."""


def compare(
    first: Sequence[float], second: Sequence[float], *, failed: tuple[int, int] = (0, 0), better: str = "less"
) -> Comparison:
    """Compare two samples, neither of them empty.

    Of runs that failed nothing is known but that they were worse than all others: they count in the ranks.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    spread = a.size > 1 and b.size > 1 and bool(np.ptp(a) > 0 or np.ptp(b) > 0)
    worst = -np.inf if better == "more" else np.inf
    all_a, all_b = (np.append(known, np.full(more, worst)) for known, more in zip((a, b), failed, strict=True))
    u = scipy.stats.mannwhitneyu(all_b, all_a, alternative="two-sided")
    return Comparison(
        n=(int(a.size), int(b.size)),
        ratio=float(np.median(b) / np.median(a)) if np.median(a) else float("inf"),
        welch_p=_welch(a, b) if spread else None,
        mann_whitney_p=float(u.pvalue) if all_a.size > 1 and all_b.size > 1 else None,
        effect=2 * float(u.statistic) / (all_a.size * all_b.size) - 1,
    )


def _welch(a: np.ndarray[tuple[int], np.dtype[np.float64]], b: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    with warnings.catch_warnings():
        # A simulated sample may have next to no spread; the test is then as good as its numbers.
        warnings.filterwarnings("ignore", message="Precision loss", category=RuntimeWarning)
        return float(scipy.stats.ttest_ind(b, a, equal_var=False).pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of p values for many comparisons; what is None stays None."""
    found = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (value, place) in enumerate(found):
        least = max(least, min(1.0, value * (len(found) - rank)))
        corrected[place] = least
    return corrected
