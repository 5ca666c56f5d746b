"""What a study's section is made of: the tables of a campaign."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.analysis.campaign import MetricRow, PointRow


@dataclass(frozen=True)
class Measured:
    """A campaign's points, its further figures, and the file that has how its runs went over time."""

    rows: Sequence[PointRow]
    figures: Sequence[MetricRow]
    samples: Path
