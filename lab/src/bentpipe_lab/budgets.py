"""What bentpipe has to reach in the demo: named limits, each with where it comes from."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from bentpipe_lab.stats import Row

FIRST_LIGHT = "first release's targets: GEO without loss, warm tunnel"
NO_HARM = "first release's targets: on LEO a tunnel may cost at most 5 % against direct TCP"


@dataclass(frozen=True)
class Budget:
    """The median of a workload through bentpipe may be at most `limit` times the reference."""

    scenario: str
    workload: str
    against: Literal["bound", "direct"]
    limit: float
    source: str


BUDGETS = (
    Budget("geo", "first byte", "bound", 1.05, FIRST_LIGHT),
    Budget("geo", "download 10 MiB", "bound", 1.12, FIRST_LIGHT),
    Budget("geo", "download 10 MiB", "direct", 1.00, FIRST_LIGHT),
    Budget("geo", "download 2 MB", "bound", 1.35, FIRST_LIGHT),
    Budget("geo", "page HTTP/2", "direct", 0.55, FIRST_LIGHT),
    Budget("geo", "page HTTP/1.1", "direct", 0.85, FIRST_LIGHT),
    Budget("leo", "first byte", "direct", 1.05, NO_HARM),
    Budget("leo", "download 2 MB", "direct", 1.05, NO_HARM),
    Budget("leo", "download 10 MiB", "direct", 1.05, NO_HARM),
)


class BudgetVerdict(StrEnum):
    """What a measurement says of a budget."""

    WITHIN = "within"
    MISSED = "missed"
    WITHIN_LATE = "within, but emulator late"
    """The emulator's certificate is invalid: what it slowed down is not known, so this proves nothing."""
    MISSED_LATE = "missed, but emulator late"
    RUNS_FAILED = "runs failed"
    """A median over survivors proves nothing."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Finding:
    """A budget beside what was measured."""

    budget: Budget
    ratio: float | None
    verdict: BudgetVerdict

    def told(self) -> dict[str, Any]:
        """As it is written to `budgets.json`."""
        return {**asdict(self.budget), "ratio": self.ratio, "verdict": self.verdict}


def judge(rows: Iterable[Row], budgets: Iterable[Budget] = BUDGETS) -> list[Finding]:
    """Compare every budget with the rows."""
    found = {(row.scenario, row.system, row.workload): row for row in rows}
    return [_judge(budget, found) for budget in budgets]


def conclusion(findings: Sequence[Finding]) -> str:
    """How many limits hold, and what became of the others, in a sentence."""
    counts = Counter(finding.verdict for finding in findings)
    held = counts.pop(BudgetVerdict.WITHIN, 0)
    others = "".join(f"; {count} {verdict}" for verdict, count in counts.items())
    return f"{held} of {len(findings)} limits hold{others}."


def _judge(budget: Budget, rows: dict[tuple[str, str, str], Row]) -> Finding:
    ours = rows.get((budget.scenario, "bentpipe", budget.workload))
    direct = rows.get((budget.scenario, "direct", budget.workload))
    needed = [ours, direct] if budget.against == "direct" else [ours]
    measured = [row for row in needed if row is not None and row.median_s is not None]
    if ours is None or ours.median_s is None or len(measured) < len(needed):
        return Finding(budget, None, BudgetVerdict.NOT_MEASURED)
    reference = direct.median_s if budget.against == "direct" and direct else ours.bound_s
    assert reference is not None
    ratio = round(ours.median_s / reference, 4)
    within, late = ratio <= budget.limit, any(not row.certificate_valid for row in measured)
    if any(row.n_ok < row.n_total for row in measured):
        verdict = BudgetVerdict.RUNS_FAILED
    elif within:
        verdict = BudgetVerdict.WITHIN_LATE if late else BudgetVerdict.WITHIN
    else:
        verdict = BudgetVerdict.MISSED_LATE if late else BudgetVerdict.MISSED
    return Finding(budget, ratio, verdict)
