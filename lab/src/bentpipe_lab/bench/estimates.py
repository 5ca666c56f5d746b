"""What runs and paths of finished campaigns took beside what `bentpipe-lab plan` expects: for `campaign/costs.py`.

`python -m bentpipe_lab.bench.estimates DIRECTORY...`, of campaigns in real time.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from bentpipe_lab.campaign import directory, journal, schedule, side_by_side
from bentpipe_lab.campaign.costs import Range
from bentpipe_lab.campaign.directory import Campaign, State
from bentpipe_lab.campaign.plan import REAL
from bentpipe_lab.campaign.store import PROVENANCE


def main() -> int:
    """Print a line for each kind of run and path, and one for the whole of each campaign."""
    for place in map(Path, sys.argv[1:]):
        for line in lines(directory.opened(place)):
            print(line)
    return 0


def lines(campaign: Campaign) -> Iterator[str]:
    """What was expected, and what it took: the least, the mean and the most."""
    points = {point.id: point for point in campaign.expansion().points}
    took: dict[str, list[float]] = defaultdict(list)
    expected: dict[str, Range] = {}
    for file in sorted((campaign.directory / directory.RUNS).glob(f"*/*/{PROVENANCE}")):
        point = points.get(file.parent.parent.name)
        if point is None or point.clock != REAL:
            continue
        kept = json.loads(file.read_text())
        chosen = ", ".join([point.workload, *map(str, point.options.values())])
        name = f"{point.axes['scenario']}, {point.system}, {chosen}"
        took[name].append(kept["took_s"])
        expected[name] = schedule.run_range(point)
        if "path_took_s" in kept["evidence"]:
            name = f"{point.axes['scenario']}, {point.system}, the path"
            took[name].append(kept["evidence"]["path_took_s"])
            expected[name] = schedule.path_range(point)
    for name, times in sorted(took.items()):
        mean = sum(times) / len(times)
        took_ = f"{min(times):.1f}, {mean:.1f}, {max(times):.1f} s ({len(times)})"
        yield f"{name}: {_told(expected[name])} expected, {took_}"
    yield f"{campaign.plan.name}: {_told(expected_s(campaign))} expected, {took_s(campaign):.0f} s"


def expected_s(campaign: Campaign) -> Range:
    """What `plan` says of the real time of a campaign."""
    points = [point for point in campaign.expansion().points if point.clock == REAL]
    units = schedule.units(campaign.plan, points, schedule.open_runs(campaign.plan, points, State()))
    return schedule.takes({point.id: point for point in points}, units, side_by_side.choice(campaign.plan).paths)


def took_s(campaign: Campaign) -> float:
    """From the first run in real time to the last one, journal and pauses included."""
    events = list(journal.read(campaign.directory / directory.JOURNAL))
    begun, ended = (datetime.fromisoformat(events[place]["at"]) for place in (0, -1))
    return (ended - begun).total_seconds()


def _told(range_: Range) -> str:
    return f"{range_.low:.1f} to {range_.high:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
