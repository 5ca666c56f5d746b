"""The studies whose reports have a section of their own, by the name of what was published."""

from collections.abc import Callable, Mapping, Sequence

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.studies import endres, kuhn
from bentpipe_lab.studies.section import Section

SECTIONS: Mapping[str, Callable[[Sequence[MetricRow]], Section]] = {"endres": endres.section, "kuhn": kuhn.section}
