"""A plan's [hosts] table: the machines on which client and server run, and what lies between them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from bentpipe_lab.errors import PlanError
from bentpipe_lab.registry import unknown

EMULATED, REAL = "emulated", "real"
LINKS = (EMULATED, REAL)
SIDES = ("client", "server")
SSH_PORT = 22


@dataclass(frozen=True)
class Host:
    """A machine with a checkout of bentpipe and the implementations that a plan names."""

    side: str
    ssh: str
    """USER@NAME or USER@NAME:PORT."""
    checkout: str
    """The checkout's directory there."""
    known_hosts: str
    """The file here that has its host key."""
    key: str | None = None
    """The file here of the key to log in with; None for the SSH agent's and the user's."""
    python: str = "python3"
    """Python 3.11 or newer there."""
    stacks: str | None = None
    """The cache of implementations there; None for its user's."""
    device: str | None = None
    """Over real access: the network device there whose packets are captured."""
    address: str | None = None
    """Over real access: the server's IPv4 address as the client reaches it."""

    @property
    def user(self) -> str:
        """Who logs in there."""
        return self.ssh.rpartition("@")[0]

    @property
    def name(self) -> str:
        """Its name or address."""
        return self._place[0]

    @property
    def port(self) -> int:
        """Where its SSH server listens."""
        return int(self._place[1] or SSH_PORT)

    @property
    def _place(self) -> tuple[str, str]:
        name, _, port = self.ssh.rpartition("@")[2].partition(":")
        return name, port


@dataclass(frozen=True)
class Hosts:
    """Where the ends of a matrix are."""

    link: str
    """Emulated, on the machine that runs the lab, or real: whatever access there is between the two."""
    client: Host
    server: Host

    @classmethod
    def parse(cls, given: Any, directory: Path) -> Self:
        """Read the table; files that it names are relative to the plan's directory."""
        if not isinstance(given, Mapping):
            raise PlanError('hosts: give a table with link = "emulated" or "real", [hosts.client] and [hosts.server]')
        for key in given:
            if key not in ("link", *SIDES):
                raise PlanError(f"hosts: {unknown('field', str(key), dict.fromkeys(['link', *SIDES]))}")
        link = given.get("link")
        if link not in LINKS:
            raise PlanError(f'hosts.link = {link!r}: give "emulated" (the emulator runs here) or "real"')
        client, server = (_host(side, given.get(side), link, directory) for side in SIDES)
        return cls(link, client, server)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """The same from plain data, as it travels to a worker."""
        return cls(table["link"], Host(**table["client"]), Host(**table["server"]))

    def as_table(self) -> dict[str, Any]:
        """As a plan has it, with whole paths."""
        sides = {
            each.side: {name: value for name, value in asdict(each).items() if name != "side" and value is not None}
            for each in (self.client, self.server)
        }
        return {"link": self.link, **sides}

    def as_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def _host(side: str, given: Any, link: str, directory: Path) -> Host:
    known = [name for name in Host.__dataclass_fields__ if name != "side"]
    if not isinstance(given, Mapping):
        raise PlanError(f'hosts.{side}: give a table with ssh = "USER@NAME" and checkout = "DIRECTORY"')
    for key, value in given.items():
        if key not in known:
            raise PlanError(f"hosts.{side}: {unknown('field', str(key), dict.fromkeys(known))}")
        if not isinstance(value, str) or not value:
            raise PlanError(f"hosts.{side}.{key} = {value!r}: give a text")
    wanted = ["ssh", "checkout"]
    if link == REAL:
        wanted += ["device"] if side == "client" else ["device", "address"]
    for key in wanted:
        if key not in given:
            raise PlanError(f"hosts.{side}.{key} is missing")
    fields = dict(given)
    for key in ("key", "known_hosts"):
        if key in fields:
            fields[key] = str((directory / Path(fields[key]).expanduser()).absolute())
    found = Host(side=side, **{"known_hosts": str(Path("~/.ssh/known_hosts").expanduser()), **fields})
    _, _, port = found.ssh.rpartition("@")[2].partition(":")
    if not found.user or not found.name or (":" in found.ssh and not port.isdecimal()):
        raise PlanError(f"hosts.{side}.ssh = {found.ssh!r}: give USER@NAME or USER@NAME:PORT")
    return found
