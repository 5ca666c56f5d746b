"""A file of the size of a heavy page or a photograph, over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.net import content
from bentpipe_lab.workloads.parts.served_file import ServedFile


class Download2Mb(ServedFile):
    """A file of the size of a heavy page or a photograph, over a new connection."""

    name = "download 2 MB"
    order = 20
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 4, "leo": 7}
    headline = False
    file = "2MB"
    curve_bytes = content.FILES[file]
