"""One command of the client's, timed from its start to its end, its result checked by whoever asked for it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.programs import inside

SAID = (
    ("refused", Verdict.REFUSED), ("reset by peer", Verdict.RESET), ("unreachable", Verdict.UNREACHABLE),
    ("No route", Verdict.UNREACHABLE), ("timed out", Verdict.TIMED_OUT),
)  # fmt: skip
"""What programs say of the network."""


def run(path: Topology, argv: Sequence[str | Path], whole: Callable[[], str], size: int) -> Outcome:
    """Run it; `whole` is asked afterwards, and says what is wrong with the result, or nothing."""
    with inside.started(path, argv) as process:
        began = time.monotonic()
        _, said = inside.heard(process)
        took = time.monotonic() - began
    if process.returncode != 0:
        verdict = next((verdict for words, verdict in SAID if words in said), Verdict.FAILED)
        return Outcome(verdict, detail=f"{argv[0]} {process.returncode}: {said.strip()[-inside.MOST_SAID :]}")
    wrong = whole()
    if wrong:
        return Outcome(Verdict.WRONG_CONTENT, detail=wrong)
    return Outcome(Verdict.OK, took, size)
