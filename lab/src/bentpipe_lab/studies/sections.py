"""The studies whose reports have a section of their own, by the name of what was published, or else of the plan."""

from collections.abc import Callable, Mapping

from bentpipe_lab.studies import controllers, endres, kosek, kuhn
from bentpipe_lab.studies.measured import Measured
from bentpipe_lab.studies.section import Section

SECTIONS: Mapping[str, Callable[[Measured], Section]] = {
    "controllers": lambda measured: controllers.section(measured.figures),
    "endres": lambda measured: endres.section(measured.figures),
    "kosek": kosek.section,
    "kuhn": lambda measured: kuhn.section(measured.figures),
}
