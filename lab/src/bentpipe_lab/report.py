"""The report: one HTML file that needs nothing else, for a person who wants to see what was measured."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bentpipe_lab import content, figures, host, sample, stats, tables
from bentpipe_lab.bounds import bound_s
from bentpipe_lab.budgets import BudgetVerdict, Finding, conclusion
from bentpipe_lab.link import Direction, Link
from bentpipe_lab.run import RECORDS, Task
from bentpipe_lab.sample import Sample
from bentpipe_lab.stats import Row
from bentpipe_lab.topology import TCP_BUFFERS, Certificate, read_certificate

DOWNLOADS = {"download 10 MiB": content.FILES["10MiB"], "download 2 MB": content.FILES["2MB"]}
PAGES = ("page HTTP/2", "page HTTP/1.1")
HEADLINES = ("first byte", "download 10 MiB", *PAGES)


@dataclass(frozen=True)
class Material:
    """Everything that the report is made of."""

    tasks: Sequence[Task]
    links: Mapping[str, Link]
    rows: Sequence[Row]
    findings: Sequence[Finding]
    problems: Sequence[str]


def write(target: Path, material: Material) -> None:
    """Write the report."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe_lab"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = tables.seconds
    environment.filters["times"] = tables.times
    page = environment.get_template("report.html.j2").render(
        scenarios=[_scenario(name, link, material) for name, link in material.links.items()],
        findings=material.findings,
        conclusion=conclusion(material.findings),
        all_hold=all(finding.verdict is BudgetVerdict.WITHIN for finding in material.findings),
        problems=material.problems,
        conditions=conditions(material),
    )
    target.write_text(page)


def conditions(material: Material) -> dict[str, str]:
    """What a reader must know to judge the numbers, or to repeat them."""
    used = sorted({task.congestion_control for task in material.tasks})
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Revision": _revision(),
        "Machine": f"{_cpu()}, {os.cpu_count()} CPUs; Linux {platform.release()}",
        "Direct": f"the kernel's TCP end to end over the same path, {', '.join(used).upper()} at both ends",
        "TCP settings": f"tcp_rmem and tcp_wmem {TCP_BUFFERS}, tcp_no_metrics_save 1, all else Linux's default;"
        " the same in every namespace and for both systems",
        "Warm": "bentpipe's tunnel carried two downloads of 10 MiB and an upload of 2 MB before it was measured",
        "Checked": "every transfer by length and SHA-256, uploads at the server; only whole and right ones have a time",
        "Punctual": "every single run has the emulator's certificate for its own time; where the machine was late, the"
        " run has no time and was repeated",
        "Order": "workloads take turns within a path; two paths are measured side by side",
    }


def _scenario(name: str, link: Link, material: Material) -> dict[str, Any]:
    tasks = [task for task in material.tasks if task.scenario.stem == name]
    rows = [row for row in material.rows if row.scenario == name]
    samples = [each for task in tasks for each in _samples(task)]
    bounds = {workload: bound_s(workload, link) for workload in DOWNLOADS}
    drawn = [figures.page_timelines(samples, page) for page in PAGES if _ended_well(samples, page)]
    return {
        "name": name.upper(),
        "title": link.title,
        "path": _path(link),
        "source": link.source,
        "tiles": [tile for workload in HEADLINES if (tile := _tile(rows, workload))],
        "lines": _lines(rows),
        "bytes": Markup(figures.bytes_over_time(samples, bounds, DOWNLOADS)),  # noqa: S704 (our own drawing)
        "pages": [Markup(page) for page in drawn],  # noqa: S704
        "ratios": Markup(figures.against_bound(rows)),  # noqa: S704
        "failures": [
            (task.system, count, verdict, detail)
            for task in tasks
            for (verdict, detail), count in stats.failures(_samples(task)).items()
        ],
        "certificates": [(task.system, _certificate(read_certificate(task.directory))) for task in tasks],
    }


def _samples(task: Task) -> list[Sample]:
    records = task.directory / RECORDS
    return sample.read(records) if records.exists() else []


def _ended_well(samples: Sequence[Sample], workload: str) -> bool:
    return any(each.workload == workload and each.outcome.seconds is not None for each in samples)


def _tile(rows: Sequence[Row], workload: str) -> dict[str, Any] | None:
    """A headline: what a person waits for, before and after."""
    found = {row.system: row for row in rows if row.workload == workload}
    direct, ours = found.get("direct"), found.get("bentpipe")
    if direct is None or ours is None or not direct.median_s or not ours.median_s:
        return None
    return {"workload": workload, "direct": direct, "ours": ours, "saved": 1 - ours.median_s / direct.median_s}


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table: a line per workload with both systems."""
    by_workload: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_workload.setdefault(row.workload, {})[row.system] = row
    return [
        {"workload": workload, "bound_s": next(iter(found.values())).bound_s, **_both(found)}
        for workload, found in by_workload.items()
    ]


def _both(found: Mapping[str, Row]) -> dict[str, Any]:
    direct, ours = found.get("direct"), found.get("bentpipe")
    ratio = ours.median_s / direct.median_s if ours and direct and ours.median_s and direct.median_s else None
    return {"direct": direct, "ours": ours, "ratio": ratio}


def _path(link: Link) -> str:
    return (
        f"forward {_direction(link.forward)}, return {_direction(link.back)};"
        f" ground {link.ground_rtt_s * 500:g} ms one way; {link.path_rtt_s * 1e3:g} ms round trip"
    )


def _direction(direction: Direction) -> str:
    loss = f", {direction.loss:.2%} loss" if direction.loss else ""
    return f"{direction.rate_bit_s / 1e6:g} Mbit/s, {direction.one_way_delay_s * 1e3:g} ms one way{loss}"


def _certificate(certificate: Certificate | None) -> str:
    if certificate is None:
        return "none: the run did not come to its end"
    worst = max(
        (direction["lateness_us"]["p999"] for link in certificate.told["links"] for direction in link["directions"]),
        default=0,
    )
    told = f"p99.9 lateness {worst:g} µs (limit {certificate.told['limit_us']:g} µs)"
    return f"valid, {told}" if certificate.valid else f"INVALID: {'; '.join(certificate.reasons)} ({told})"


def _revision() -> str:
    done = subprocess.run(
        ["git", "-C", str(host.REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
