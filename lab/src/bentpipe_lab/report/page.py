"""The report of the demo: one HTML file that needs nothing else, for a person who wants to see what was measured."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from bentpipe_lab.analysis import stats
from bentpipe_lab.analysis.budgets import BudgetVerdict, Finding, conclusion
from bentpipe_lab.analysis.stats import Row
from bentpipe_lab.campaign.path_run import RECORDS, Task
from bentpipe_lab.net import host
from bentpipe_lab.net.link import Direction, Link
from bentpipe_lab.net.topology import TCP_BUFFERS, Certificate, read_certificate
from bentpipe_lab.records import sample
from bentpipe_lab.records.sample import Sample
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import figures, tables
from bentpipe_lab.report.style import told
from bentpipe_lab.systems import SYSTEMS, baseline, system_of
from bentpipe_lab.workloads import WORKLOADS


@dataclass(frozen=True)
class Material:
    """Everything that the report is made of."""

    tasks: Sequence[Task]
    links: Mapping[str, Link]
    rows: Sequence[Row]
    findings: Sequence[Finding]
    problems: Sequence[str]
    measured: Mapping[str, str] = field(default_factory=lambda: now())
    """When, with which revision and where it was measured."""


def write(target: Path, material: Material) -> None:
    """Write the report."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe_lab.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = tables.seconds
    environment.filters["times"] = tables.times
    page = environment.get_template("report.html.j2").render(
        scenarios=[_scenario(name, link, material) for name, link in material.links.items()],
        baseline=baseline().name,
        findings=material.findings,
        conclusion=conclusion(material.findings),
        all_hold=all(finding.verdict is BudgetVerdict.WITHIN for finding in material.findings),
        problems=material.problems,
        conditions=conditions(material),
    )
    target.write_text(page)


def now() -> dict[str, str]:
    """The date, the revision and the machine of what is measured now."""
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Revision": _revision(),
        "Machine": f"{_cpu()}, {os.cpu_count()} CPUs; Linux {platform.release()}",
    }


def conditions(material: Material) -> dict[str, str]:
    """What a reader must know to judge the numbers, or to repeat them."""
    used = sorted({task.congestion_control for task in material.tasks})
    return {
        **material.measured,
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
    measured = {row.workload for row in rows}
    curves = {
        workload.name: workload.curve_bytes
        for workload in sorted(WORKLOADS, key=lambda workload: -(workload.curve_bytes or 0))
        if workload.curve_bytes and workload.name in measured
    }
    bounds = {name: WORKLOADS[name].bound_s(link) for name in curves}
    timelines = [workload.name for workload in WORKLOADS if workload.timeline and _ended_well(samples, workload.name)]
    systems = tables.shown(rows)
    return {
        "name": name.upper(),
        "title": link.title,
        "path": _path(link),
        "source": link.source,
        "tiles": [tile for each in WORKLOADS if each.headline and (tile := _tile(rows, each.name))],
        "systems": [_column(name) for name in systems],
        "lines": _lines(rows, systems),
        "bytes": told(figures.bytes_over_time(samples, bounds, curves), _arrivals(curves)) if curves else "",
        "pages": [
            told(figures.page_timelines(samples, name), f"Objects of {name} over time, a panel for each system")
            for name in timelines
        ],
        "ratios": told(figures.against_bound(rows), _multiples(rows)),
        "failures": [failure for task in tasks for failure in _failures(task)],
        "certificates": [(task.system, _certificate(read_certificate(task.directory))) for task in tasks],
    }


def _arrivals(curves: Mapping[str, int]) -> str:
    return f"Bytes received over time in every run: {', '.join(curves)}; the table has the times"


def _multiples(rows: Sequence[Row]) -> str:
    known = [f"{row.workload}, {row.system}: {row.ratio_to_bound:.2f}" for row in rows if row.ratio_to_bound]
    return f"Median times as multiples of their bounds. {'; '.join(known)}"


def _samples(task: Task) -> list[Sample]:
    records = task.directory / RECORDS
    return sample.read(records) if records.exists() else []


def _failures(task: Task) -> list[dict[str, Any]]:
    """What went wrong in a task's runs, one entry for each verdict, with all that was said of it."""
    by_verdict: dict[str, list[tuple[str, int]]] = {}
    for (verdict, detail), count in stats.failures(_samples(task)).items():
        by_verdict.setdefault(verdict, []).append((detail, count))
    return [
        {
            "system": task.system,
            "verdict": verdict,
            "runs": sum(count for _, count in details),
            "details": details,
            "of_the_emulator": verdict == Verdict.EMULATOR_LATE,
        }
        for verdict, details in by_verdict.items()
    ]


def _ended_well(samples: Sequence[Sample], workload: str) -> bool:
    return any(each.workload == workload and each.outcome.seconds is not None for each in samples)


def _tile(rows: Sequence[Row], workload: str) -> dict[str, Any] | None:
    """A headline: what a person waits for, without and with each system."""
    found = {row.system: row for row in rows if row.workload == workload}
    base = found.get(baseline().name)
    if base is None or not base.median_s:
        return None
    compared = [
        {"system": SYSTEMS[name], "row": row, "saved": 1 - value}
        for name, row in found.items()
        if name in SYSTEMS and name != base.system and (value := tables.ratio(row, base)) is not None
    ]
    return {"workload": workload, "base": base, "compared": compared} if compared else None


def _column(name: str) -> dict[str, Any]:
    """A system as a column of the table."""
    system = system_of(name)
    return {"name": name, "colour": system.colour if system else "inherit", "base": name == baseline().name}


def _lines(rows: Sequence[Row], systems: Sequence[str]) -> list[dict[str, Any]]:
    """The table: a line per workload with every system."""
    by_workload: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_workload.setdefault(row.workload, {})[row.system] = row
    return [
        {
            "workload": workload,
            "measures": WORKLOADS[workload].measures,
            "bound_s": next(iter(found.values())).bound_s,
            "cells": [
                {"row": found.get(name), "ratio": tables.ratio(found.get(name), found.get(baseline().name))}
                for name in systems
            ],
        }
        for workload, found in by_workload.items()
    ]


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
        (direction["lateness_us"]["p999"] for link in certificate.fields["links"] for direction in link["directions"]),
        default=0,
    )
    lateness = f"p99.9 lateness {worst:g} µs (limit {certificate.fields['limit_us']:g} µs)"
    return f"valid, {lateness}" if certificate.valid else f"INVALID: {'; '.join(certificate.reasons)} ({lateness})"


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
