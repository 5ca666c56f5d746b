"""The values of an axis: one, a list, or a range with the unit of its ends."""

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from bentpipe_lab.errors import PlanError

Value = str | int | float | bool
_PREFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9}
"""Of units that differ within one axis."""
_QUANTITY = re.compile(r"^\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")
_RANGE = {"from", "to", "steps", "scale"}
MOST_STEPS = 100_000


def values(axis: str, given: Any) -> list[Value]:
    """The values that an axis was given in a plan, in order."""
    if isinstance(given, Mapping):
        return _range(axis, given)
    found = list(given) if isinstance(given, list) else [given]
    if not found:
        raise PlanError(f"axes.{axis}: an empty list leaves no point; leave the axis out or give it a value")
    for value in found:
        if not isinstance(value, str | int | float | bool):
            raise PlanError(f"axes.{axis}: {value!r} is no value; give text, numbers or true and false")
    if len(set(map(repr, found))) < len(found):
        raise PlanError(f"axes.{axis}: a value is there twice; repetitions are `repetitions`, not values")
    return found


def is_range(given: Any) -> bool:
    """Whether a table is a range and not fields below a name."""
    return isinstance(given, Mapping) and {"from", "to"} <= set(given)


def number(value: Value) -> float | None:
    """The number at the beginning of a value, without its unit; None where there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _QUANTITY.match(value)
    return float(found[1]) if found else None


def in_one_unit(given: Iterable[Value]) -> tuple[dict[str, float], str] | None:
    """The numbers of values as they are written, all in the smallest of their units, and that unit; None without."""
    found = {str(value): (number(value), _unit(value)) for value in given}
    units = {unit for _, unit in found.values()}
    sizes = {unit: _PREFIXES.get(unit[:1], 1.0) if len(units) > 1 else 1.0 for unit in units}
    if any(value is None for value, _ in found.values()) or not found:
        return None
    if len({unit[1:] if _PREFIXES.get(unit[:1]) else unit for unit in units}) > 1:
        return None
    smallest = min(units, key=lambda unit: (sizes[unit], unit))
    numbers = {text: (value or 0.0) * sizes[unit] / sizes[smallest] for text, (value, unit) in found.items()}
    return numbers, smallest


def _unit(value: Value) -> str:
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return match[2] if match else ""


def _range(axis: str, given: Mapping[str, Any]) -> list[Value]:
    wrong = set(given) - _RANGE
    if wrong or not {"from", "to", "steps"} <= set(given):
        raise PlanError(f'axes.{axis}: a range is {{ from, to, steps }}, and scale = "log" where it is wanted')
    steps, scale = given["steps"], given.get("scale", "linear")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 2 <= steps <= MOST_STEPS:
        raise PlanError(f"axes.{axis}: steps = {steps!r}: give 2 to {MOST_STEPS}")
    if scale not in ("linear", "log"):
        raise PlanError(f'axes.{axis}: scale = {scale!r}: give "linear" or "log"')
    (low, unit), (high, other) = _quantity(axis, given["from"]), _quantity(axis, given["to"])
    if unit != other:
        raise PlanError(f"axes.{axis}: from is in {unit!r} and to in {other!r}: give both in one unit")
    if scale == "log" and not (low > 0 and high > 0):
        raise PlanError(f"axes.{axis}: a logarithmic range begins and ends above zero")
    whole = unit == "" and isinstance(given["from"], int) and isinstance(given["to"], int) and scale == "linear"
    found: list[Value] = []
    for step in range(steps):
        share = step / (steps - 1)
        at = (
            low + (high - low) * share
            if scale == "linear"
            else math.exp(math.log(low) * (1 - share) + math.log(high) * share)
        )
        text = format(Decimal(f"{at:.6g}"), "f")
        exact = float(text)
        found.append(f"{text} {unit}" if unit else int(exact) if whole and exact == int(exact) else exact)
    return found


def _quantity(axis: str, value: Any) -> tuple[float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    found = _QUANTITY.match(value) if isinstance(value, str) else None
    if found is None:
        raise PlanError(f"axes.{axis}: {value!r} is no number with a unit")
    return float(found[1]), found[2]
