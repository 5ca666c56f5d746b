"""The studies whose reports have a section of their own, by the name of what was published, or else of the plan."""

from collections.abc import Callable, Mapping, Sequence

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.studies import controllers, endres, kuhn
from bentpipe_lab.studies.section import Section

SECTIONS: Mapping[str, Callable[[Sequence[MetricRow]], Section]] = {
    "controllers": controllers.section,
    "endres": endres.section,
    "kuhn": kuhn.section,
}
