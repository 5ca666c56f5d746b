"""What bentpipe has to reach in the demo: named limits, each with where it comes from."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from bentpipe_lab.analysis.stats import Row
from bentpipe_lab.systems import baseline
from bentpipe_lab.systems.tunnel import Tunnel
from bentpipe_lab.workloads import WORKLOADS

SUBJECT = Tunnel.name
"""The system that has the limits."""

FIRST_RELEASE = "first release's targets: GEO without loss, warm tunnel"
NO_HARM = "first release's targets: on LEO a tunnel may cost at most 5 % against direct TCP"


@dataclass(frozen=True)
class Budget:
    """The median of a workload through bentpipe may be at most `limit` times the reference."""

    scenario: str
    workload: str
    against: Literal["bound", "baseline"]
    limit: float
    source: str

    def __post_init__(self) -> None:
        """Refuse a workload that nobody has."""
        WORKLOADS[self.workload]

    @property
    def reference(self) -> str:
        """What it is held against, by name."""
        return baseline().name if self.against == "baseline" else "bound"


BUDGETS = (
    Budget("geo", "first byte", "bound", 1.05, FIRST_RELEASE),
    Budget("geo", "download 10 MiB", "bound", 1.12, FIRST_RELEASE),
    Budget("geo", "download 10 MiB", "baseline", 1.00, FIRST_RELEASE),
    Budget("geo", "download 2 MB", "bound", 1.35, FIRST_RELEASE),
    Budget("geo", "page HTTP/2", "baseline", 0.55, FIRST_RELEASE),
    Budget("geo", "page HTTP/1.1", "baseline", 0.85, FIRST_RELEASE),
    Budget("leo", "first byte", "baseline", 1.05, NO_HARM),
    Budget("leo", "download 2 MB", "baseline", 1.05, NO_HARM),
    Budget("leo", "download 10 MiB", "baseline", 1.05, NO_HARM),
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

    def as_record(self) -> dict[str, Any]:
        """As it is written to `budgets.json`."""
        return {**asdict(self.budget), "against": self.budget.reference, "ratio": self.ratio, "verdict": self.verdict}


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
    ours = rows.get((budget.scenario, SUBJECT, budget.workload))
    direct = rows.get((budget.scenario, baseline().name, budget.workload))
    needed = [ours, direct] if budget.against == "baseline" else [ours]
    measured = [row for row in needed if row is not None and row.median_s is not None]
    if ours is None or ours.median_s is None or len(measured) < len(needed):
        return Finding(budget, None, BudgetVerdict.NOT_MEASURED)
    reference = direct.median_s if budget.against == "baseline" and direct else ours.bound_s
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
