"""A large file over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.net import content
from bentpipe_lab.workloads.parts.served_file import ServedFile


class Download10Mib(ServedFile):
    """A large file over a new connection."""

    name = "download 10 MiB"
    order = 50
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 3, "leo": 5}
    headline = True
    file = "10MiB"
    curve_bytes = content.FILES[file]
