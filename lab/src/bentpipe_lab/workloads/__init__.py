"""What is done over a path and measured: one file, one class each; `WORKLOADS` holds them by name."""

import sys

from bentpipe_lab.registry import Registry
from bentpipe_lab.workloads.contract import Workload

WORKLOADS: Registry[Workload] = Registry("workload", Workload)
WORKLOADS.find(sys.modules[__name__])
