"""Figures of parts of a run: legs of a path that was changed for another, the second half, amounts that had arrived."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Sample = Mapping[str, Any]
STEP_S = 1.0
"""Standard deviations of a goodput are over seconds, as Bujari et al. have them."""
AMOUNTS_MB = (2, 10, 100)
"""As draft-kuhn-quic-4-sat has them."""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def switches_s(scenario: Mapping[str, Any]) -> list[float]:
    """The moments, seconds, at which a scenario changes its satellite hop for another."""
    return sorted(_seconds(str(switch["at"])) for switch in scenario.get("switch", ()))


def of_fixed_length(samples: Sequence[Sample], switches: Sequence[float]) -> dict[str, float]:
    """Goodput and round-trip time of each leg, or of the second half where there is one leg; by figure."""
    if len(samples) < 2:
        return {}
    end_s = float(samples[-1]["at_s"])
    edges = [0.0, *(moment for moment in switches if moment < end_s), end_s]
    if len(edges) == 2:
        return _leg("second_half", samples, end_s / 2, end_s)
    found: dict[str, float] = {}
    for number, (begin_s, until_s) in enumerate(itertools.pairwise(edges), start=1):
        found |= _leg(f"leg_{number}", samples, begin_s, until_s)
    return found


def amounts(samples: Sequence[Sample], size: int, took_s: float) -> dict[str, float]:
    """When so much of a transfer had arrived, seconds: by the sample that first tells it, its end to the moment."""
    found = {}
    for megabytes in AMOUNTS_MB:
        wanted = megabytes * 1_000_000
        if wanted == size:
            found[f"received_{megabytes}_mb_s"] = took_s
        elif wanted < size:
            moment = next((sample["at_s"] for sample in samples if sample["received_bytes"] >= wanted), None)
            if moment is not None:
                found[f"received_{megabytes}_mb_s"] = float(moment)
    return found


def _leg(name: str, samples: Sequence[Sample], begin_s: float, end_s: float) -> dict[str, float]:
    found: dict[str, float] = {}
    inside = [sample for sample in samples if begin_s < sample["at_s"] <= end_s]
    for column, figure in (("received_bytes", "goodput"), ("arrived_udp_bytes", "udp_payload")):
        known = [(sample["at_s"], sample[column]) for sample in samples if sample.get(column) is not None]
        if known and inside:
            rates = _rates(known, begin_s, end_s)
            found[f"{name}_{figure}_mbit_s"] = float(rates.mean())
            found[f"{name}_{figure}_sd_mbit_s"] = float(rates.std())
    rtts = [sample["rtt_s"] for sample in inside if sample.get("rtt_s") is not None]
    if rtts:
        found[f"{name}_rtt_s"], found[f"{name}_rtt_sd_s"] = float(np.mean(rtts)), float(np.std(rtts))
    return found


def _rates(known: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Mbit/s in each step between; what is less than half a step at the end is left out."""
    steps = max(1, round((end_s - begin_s) / STEP_S))
    edges = np.linspace(begin_s, end_s, steps + 1)
    arrived = np.interp(edges, [at for at, _ in known], [count for _, count in known], left=0.0)
    return np.asarray(np.diff(arrived) * 8e-6 / np.diff(edges))


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\w+)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is no time")
    return float(match[1]) * _UNITS[match[2]]
