"""Runs whose client and server are on other machines: both told by SSH what to do, their captures fetched and read."""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe_lab.errors import LabError
from bentpipe_lab.hosts import cable
from bentpipe_lab.hosts.clock import Offset
from bentpipe_lab.hosts.connection import Connection, Program, connected
from bentpipe_lab.hosts.table import EMULATED, SIDES, Hosts
from bentpipe_lab.matrix import cell, ends, evidence, link_records
from bentpipe_lab.matrix.agent import CableEnd, Task
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import GROUND, LAN, SERVER4, Topology, topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import certificates

AGENT = "bentpipe_lab.matrix.agent"
BESIDE_S = 60.0
"""What an end may take beside the download and its own start."""
OFFSETS = "clock_offsets"


@dataclass(frozen=True)
class End:
    """An end that has ended on its machine."""

    verdict: Verdict
    detail: str
    exit_code: int | None
    text: str
    directory: str
    """There."""
    key_log: Path
    """Here."""

    def said(self, lines: int = 8) -> str:
        """The last lines of its output."""
        return "\n".join(self.text.splitlines()[-lines:])


@dataclass
class Apart:
    """The two machines that the ends are on, for the runs over a path."""

    hosts: Hosts
    connections: Mapping[str, Connection]
    runner: asyncio.Runner
    identifiers: Mapping[str, int]
    """Of the cables, by side, where the link is emulated here."""
    offsets: dict[str, Offset] = field(default_factory=dict)
    """How far the clock of each machine was ahead of the one here, when the last run began."""

    @property
    def server_address(self) -> str:
        """Where the client reaches the server."""
        return self.hosts.server.address or SERVER4

    def evidence(self) -> dict[str, Any]:
        """What is recorded of each run: where its ends were, and how far their clocks were ahead, seconds."""
        return {
            "hosts": {side: connection.host.ssh for side, connection in self.connections.items()},
            "link": self.hosts.link,
            OFFSETS: {side: asdict(offset) for side, offset in self.offsets.items()},
        }

    def run(self, path: Topology, request: cell.Request) -> Outcome:
        """Fetch a file by one implementation from another; both are on other machines."""
        try:
            both = cell.agreed(request)
        except ends.EndedError as error:
            return Outcome(error.verdict, detail=error.detail)
        directory = cell.fresh(path)
        begun_ns = time.time_ns()
        parts = self.runner.run(_both(self, path, request, both, directory))
        link_records.handed_over(path)
        if path.records is not None:
            link_records.since(path.records, begun_ns).write_parquet(directory / link_records.TABLE)
        deciding = parts["server"] if "client" not in parts else parts["client"]
        if deciding.verdict is not Verdict.OK and parts["server"].verdict is not Verdict.OK:
            deciding = parts["server"]
        if not all((directory / f"{side}.pcap").is_file() for side in SIDES):
            return Outcome(deciding.verdict, detail=deciding.detail)
        verdict, detail = deciding.verdict, deciding.detail
        found = evidence.outcome(path.link, verdict, detail, both.protocol, parts, directory)
        _by_one_clock(found.files, self.offsets)
        ahead = {f"{side}_clock_ahead_s": offset.offset_s for side, offset in self.offsets.items()}
        unsure = {f"{side}_clock_uncertain_s": offset.uncertain_s for side, offset in self.offsets.items()}
        return replace(found, metrics={**found.metrics, **ahead, **unsure})

    def task(self, path: Topology, side: str, request: cell.Request, both: cell.Agreed) -> Task:
        """What one end is to do."""
        device, addresses, gateways = {
            "client": ("lan0", (f"{LAN.far4}/24", f"{LAN.far6}/64"), (LAN.near4, LAN.near6)),
            "server": ("gnd0", (f"{GROUND.far4}/24", f"{GROUND.far6}/64"), (GROUND.near4, GROUND.near6)),
        }[side]
        known = self.connections[side].host.device
        emulated = self.hosts.link == EMULATED
        where = path.directory.absolute() / "matrix" / "certificates"
        wanted = [certificates.AUTHORITY] + ([certificates.CHAIN, certificates.KEY] if side == "server" else [])
        return Task(
            role=side, implementation=both.sides[side].name, protocol=both.protocol, knobs=both.knobs[side],
            file=request.file, limit_s=request.limit_s, server=self.server_address,
            certificates={name: (where / name).read_text() for name in wanted},
            device=device if emulated or known is None else known,
            cable=CableEnd(self.identifiers[side], addresses, gateways) if emulated else None,
        )  # fmt: skip


@contextmanager
def path_to(hosts: Hosts, directory: Path, scenario: Path) -> Iterator[tuple[Topology, Apart]]:
    """Log in to both machines, and put what the plan says between them."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            found = {
                side: runner.run(stack.enter_async_context(connected(each)))
                for side, each in (("client", hosts.client), ("server", hosts.server))
            }
            draw = random.SystemRandom()
            apart = Apart(hosts, found, runner, {side: draw.randrange(1, 1 << 24) for side in SIDES})
            if hosts.link == EMULATED:
                with topology(
                    directory, scenario, web_server=False, records=True, cables=lambda path: _cables(path, apart)
                ) as path:
                    _certify(path, apart)
                    yield path, apart
            else:
                path = _nothing_between(directory, scenario)
                _certify(path, apart)
                yield path, apart
        finally:
            runner.run(stack.aclose())


def _nothing_between(directory: Path, scenario: Path) -> Topology:
    """A path of which nothing is here; the scenario says what the access should be like."""
    directory.mkdir(parents=True, exist_ok=True)
    client, terminal, gateway, server, satellite = (
        Namespace(f"none-{name}") for name in ("client", "terminal", "gateway", "server", "satellite")
    )
    link = Link.from_explanation(explain(scenario))
    return Topology("none", directory, link, client, terminal, gateway, server, satellite, ends_apart=True)


def _cables(path: Topology, apart: Apart) -> None:
    for side, where, device, hop in (
        ("client", path.terminal, "lan0", (f"{LAN.near4}/24", f"{LAN.near6}/64")),
        ("server", path.gateway, "gnd0", (f"{GROUND.near4}/24", f"{GROUND.near6}/64")),
    ):
        cable.lay(where, device, apart.connections[side].address, apart.identifiers[side], *hop)
        where.ip("link", "set", device, "gso_max_segs", "1")


def _certify(path: Topology, apart: Apart) -> None:
    certificates.make(
        path.directory.absolute() / "matrix" / "certificates",
        Authority.of(path),
        [ends.SERVER_NAME, "server4"],
        [apart.server_address],
    )


async def _both(
    apart: Apart, path: Topology, request: cell.Request, both: cell.Agreed, directory: Path
) -> dict[str, End]:
    """Start the server, then the client, and wait for either's end; what came of both, their files fetched."""
    found: dict[str, End] = {}
    async with AsyncExitStack() as stack:
        programs: dict[str, Program] = {}
        for side in ("server", "client"):
            connection = apart.connections[side]
            programs[side] = await stack.enter_async_context(_agent(connection))
            apart.offsets[side] = await programs[side].clock_offset()
            programs[side].tell(apart.task(path, side, request, both).line())
            said = await _event(programs[side], ends.READY_S + BESIDE_S)
            if said["event"] != "ready":
                found[side] = await _ended(connection, side, said, directory)
                break
        waiting = {
            side: asyncio.ensure_future(_event(program, request.limit_s + ends.READY_S + BESIDE_S))
            for side, program in programs.items()
            if side not in found
        }
        try:
            if len(waiting) == len(SIDES):
                await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
            for side in ("client", "server"):
                if side in waiting:
                    if not waiting[side].done():
                        programs[side].tell("end\n")
                    found[side] = await _ended(apart.connections[side], side, await waiting[side], directory)
        finally:
            for future in waiting.values():
                future.cancel()
    return found


def _agent(connection: Connection) -> Any:
    environment = {"PYTHONPATH": "lab/src"}
    if connection.host.stacks:
        environment["BENTPIPE_STACKS"] = connection.host.stacks
    return connection.program([connection.host.python, "-m", AGENT], environment)


async def _event(program: Program, patience_s: float) -> dict[str, Any]:
    line = await program.line(patience_s)
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise LabError(f"{program.host.side} {program.host.ssh} said what is no event: {line[:200]!r}") from error
    return event


async def _ended(connection: Connection, side: str, said: Mapping[str, Any], directory: Path) -> End:
    there = said["directory"]
    keys = directory / side / "logs"
    keys.mkdir(parents=True, exist_ok=True)
    end = End(Verdict(said["verdict"]), f"{said['detail']}", said["exit_code"], said["said"], there, keys / "keys.log")
    for name in (f"{side}.pcap", f"tcpdump-{side}.log"):
        await connection.fetch(f"{there}/{name}", directory / name)
    await connection.fetch(f"{there}/{side}/logs/keys.log", end.key_log)
    return end


def _by_one_clock(files: Mapping[str, str], offsets: Mapping[str, Offset]) -> None:
    """Have the times of all kept tables be those of the clock here, as far as it can be told."""
    for name, file in files.items():
        side = name.partition("-")[0]
        if side in offsets and name.endswith(".parquet"):
            ahead_ns = round(offsets[side].offset_s * 1e9)
            pl.read_parquet(file).with_columns(pl.col("time_ns") - ahead_ns).write_parquet(file)
