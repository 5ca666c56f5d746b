"""What a worker does: one unit, in virtual or in real time, wherever the worker is."""

import threading
from typing import Any

from bentpipe_lab.campaign import emulate, simulate
from bentpipe_lab.campaign.plan import VIRTUAL
from bentpipe_lab.campaign.store import Store
from bentpipe_lab.campaign.unit import Unit

STOP = threading.Event()
"""Set when this process is to end the units that it works on."""


def work(unit: Unit, store_url: str) -> list[dict[str, Any]]:
    """Do a unit's runs and keep them in the store; what came of those that are done."""
    store = Store(store_url)
    if unit.clock == VIRTUAL:
        return simulate.execute(unit, store, STOP)
    return emulate.execute(unit, store, STOP)
