"""What campaigns that were killed left on this machine: namespaces with all that runs in them, and directories."""

from bentpipe_lab import scratch
from bentpipe_lab.net import host

PATIENCE_S = 30.0
"""Paths end by themselves when their campaign is killed; most take a second or two, with a browser somewhat more."""


def clean() -> list[str]:
    """Remove what has no owner any more, and wait for paths that are being removed; the names of what was left."""
    directories = scratch.clean_leftovers(PATIENCE_S)
    return [*host.clean_leftovers(), *directories]
