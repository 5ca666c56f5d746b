"""One measured quantity of the benchmark, with what it is held against."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Quantity:
    """One measured quantity, beside a peer's when there is one to compare with, within its limits where it has any."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    least: float | None = None
    """It must reach this."""
    most: float | None = None
    """It must not pass this."""

    @property
    def holds(self) -> bool | None:
        """Whether it keeps its limits; None when it has none."""
        if self.least is None and self.most is None:
            return None
        # Written so that a value that is no number keeps no limit.
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def limit(self) -> str:
        """The limits as a person reads them."""
        least = "" if self.least is None else f">= {self.least:.4g}"
        most = "" if self.most is None else f"<= {self.most:.4g}"
        return " and ".join(filter(None, (least, most)))

    def as_record(self) -> dict[str, str | float | None]:
        """As it is written to `summary.json`."""
        ratio = round(self.value / self.peer_value, 4) if self.peer_value else None
        return {**asdict(self), "ratio": ratio, "holds": self.holds}
