"""Links of the simulator's plans."""

from collections.abc import Mapping
from typing import Any

from bentpipe_lab.errors import UnsupportedError


def links(system: str, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The link of a plan, and the one to which the terminal moves with another address."""
    switches = scenario.get("switch", [])
    moves = [switch for switch in switches if switch.get("new_address")]
    if not moves:
        return {"link": scenario}
    if len(switches) > 1:
        raise UnsupportedError(f"{system} has one change of address in virtual time, and no other switch beside it")
    (move,) = moves
    link = {"name": scenario["name"], **{end: move[end] for end in ("forward", "return") if end in move}}
    before = {name: value for name, value in scenario.items() if name != "switch"}
    return {"link": before, "move": {"at": move["at"], "link": link}}
