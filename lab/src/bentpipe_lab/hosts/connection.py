"""SSH connections to other machines: host keys always verified, programs with pipes, files fetched."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh

from bentpipe_lab.errors import LabError
from bentpipe_lab.hosts import clock
from bentpipe_lab.hosts.table import Host

CONNECT_S = 30.0
ANSWER_S = 60.0
"""How long a program there may take to say something that it says at once."""
ALIVE_EVERY_S = 15
MOST_OF_A_LINE = 1 << 20
CLOCK = "clock\n"
"""What a program is told that it should answer with its clock's nanoseconds."""


class Program:
    """A program on another machine that is told lines and says lines."""

    def __init__(self, host: Host, process: Any) -> None:
        self.host = host
        self._process = process

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        self._process.stdin.write(line)

    async def line(self, patience_s: float = ANSWER_S) -> str:
        """The next line of its standard output."""
        try:
            async with asyncio.timeout(patience_s):
                said = str(await self._process.stdout.readline())
        except TimeoutError:
            raise LabError(f"{self.host.side} {self.host.ssh}: nothing was said within {patience_s:.0f} s") from None
        except (asyncssh.Error, ValueError) as error:
            raise LabError(f"{self.host.side} {self.host.ssh}: {error}") from error
        if not said.endswith("\n"):
            raise LabError(f"{self.host.side} {self.host.ssh}: the program there ended: {await self._complaint()}")
        return said

    async def clock_offset(self) -> clock.Offset:
        """How far the clock there is ahead of the clock here."""
        exchanges = []
        for _ in range(clock.EXCHANGES):
            asked = time.time_ns()
            self.tell(CLOCK)
            answered = await self.line()
            exchanges.append(clock.Exchange(asked, int(answered), time.time_ns()))
        return clock.offset(exchanges)

    async def _complaint(self) -> str:
        async with asyncio.timeout(ANSWER_S):
            text = str(await self._process.stderr.read(1 << 16))
        return text.strip()[-1000:] or "it said nothing"


class Connection:
    """A machine that we are logged in to."""

    def __init__(self, host: Host, ssh: Any) -> None:
        self.host = host
        self._ssh = ssh

    @property
    def address(self) -> str:
        """Its IP address, by which it was reached."""
        return str(self._ssh.get_extra_info("peername")[0])

    @asynccontextmanager
    async def program(self, argv: Sequence[str], environment: dict[str, str]) -> AsyncIterator[Program]:
        """Run a program in the checkout there; at the end of the block its input is closed, and it is waited for."""
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        command = f"cd {shlex.quote(self.host.checkout)} && {names} exec {shlex.join(argv)}"
        try:
            process = await self._ssh.create_process(command, encoding="utf-8", errors="replace")
        except asyncssh.Error as error:
            raise LabError(f"{self.host.side} {self.host.ssh}: no program can be started: {error}") from error
        try:
            yield Program(self.host, process)
        finally:
            process.stdin.write_eof()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await process.wait_closed()
            except TimeoutError:
                process.close()

    async def fetch(self, there: str, here: Path) -> bool:
        """Copy a file from there; whether there is one."""
        try:
            async with self._ssh.start_sftp_client() as sftp:
                if not await sftp.isfile(there):
                    return False
                await sftp.get(there, str(here))
        except (asyncssh.Error, OSError) as error:
            raise LabError(f"{self.host.side} {self.host.ssh}: {there} cannot be fetched: {error}") from error
        return True


@asynccontextmanager
async def connected(host: Host) -> AsyncIterator[Connection]:
    """Log in to a machine whose host key is known; any other is refused."""
    if not Path(host.known_hosts).is_file():
        raise LabError(f"{host.side} {host.ssh}: there is no {host.known_hosts} to know its host key from")
    keys = {"client_keys": [host.key]} if host.key else {}
    try:
        ssh = await asyncssh.connect(
            host.name, host.port, username=host.user, known_hosts=host.known_hosts, config=None,
            connect_timeout=CONNECT_S, keepalive_interval=ALIVE_EVERY_S, **keys,
        )  # fmt: skip
    except asyncssh.HostKeyNotVerifiable as error:
        raise LabError(
            f"{host.side} {host.ssh}: its host key is not the one in {host.known_hosts} ({error}). If it is new, add"
            f" the line of `ssh-keyscan -p {host.port} {host.name}` once its fingerprint has been compared there"
        ) from error
    except asyncssh.PermissionDenied as error:
        raise LabError(f"{host.side} {host.ssh}: logging in was refused: {error}") from error
    except (asyncssh.Error, OSError, ValueError) as error:
        raise LabError(f"{host.side} {host.ssh} cannot be reached: {error or type(error).__name__}") from error
    async with ssh:
        yield Connection(host, ssh)
