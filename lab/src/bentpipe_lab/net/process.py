"""Programs that run beside a measurement: started, awaited, listened to, ended in order, logs kept."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bentpipe_lab.errors import ProgramError

PATIENCE_S = 60.0
"""How long a program may take over something that it does at once on an idle machine."""
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command: it ends with whoever started it, however that ends."""


class Process:
    """One supervised program in a session of its own, so that Ctrl-C reaches it only through its owner.

    Its standard output is kept in `NAME.out`, its standard error in `NAME.log`, in the run's directory.
    """

    def __init__(self, name: str, argv: Sequence[str | Path], directory: Path) -> None:
        self.name = name
        self.out = directory / f"{name}.out"
        self.log = directory / f"{name}.log"
        self._read = self.out.stat().st_size if self.out.exists() else 0
        with self.out.open("ab") as out, self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._popen.poll()

    def wait_line(self, prefix: str, patience_s: float = PATIENCE_S) -> str:
        """Wait for the next line of standard output which starts with `prefix`, and return it.

        Lines are consumed in order: a second call waits for a second line.
        """
        deadline = time.monotonic() + patience_s
        while True:
            ended = self.exit_code is not None
            line = self._next_line(prefix)
            if line is not None:
                return line
            if ended:
                raise ProgramError(f"{self.name} ended with {self.exit_code} before it said `{prefix}`{self.tail()}")
            if time.monotonic() > deadline:
                raise ProgramError(f"{self.name} did not say `{prefix}` within {patience_s:.0f} s{self.tail()}")
            time.sleep(0.01)

    def stop(self, patience_s: float = 15.0) -> int:
        """End it the way a person would (SIGINT), then by force; return its exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self.exit_code is not None:
                break
            self.signal(number)
            try:
                self._popen.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
        return self.wait()

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end; return its exit code."""
        try:
            return self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{self.name} still runs after {patience_s:.0f} s{self.tail()}") from None

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.exit_code is None:
            self._popen.send_signal(number)

    def cpu_seconds(self) -> float:
        """Processor time it has used until now, in user and kernel mode."""
        user, system = _stat(self.pid)[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Its resident memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def tree_cpu_seconds(self) -> float:
        """Processor time of it and all its children, ended ones too."""
        ticks = 0
        for pid in self._session():
            fields = _stat(pid)
            ticks += sum(int(field) for field in fields[11 : 15 if pid == self.pid else 13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def tree_bytes(self) -> int:
        """Memory of it and its living children; what they share is counted once."""
        total = 0
        for pid in self._session():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def _session(self) -> list[int]:
        """The processes of its session: itself and its children."""
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in numbers if (fields := _stat(pid)) and int(fields[3]) == self.pid]

    def tail(self, lines: int = 12) -> str:
        """The last lines it wrote, for a message to a person."""
        text = [
            line for path in (self.out, self.log) for line in path.read_text(errors="replace").splitlines()[-lines:]
        ]
        return ":\n" + "\n".join(f"    {line}" for line in text) if text else " (it wrote nothing)"

    def _next_line(self, prefix: str) -> str | None:
        with self.out.open("rb") as out:
            out.seek(self._read)
            for raw in out:
                if not raw.endswith(b"\n"):
                    break
                self._read += len(raw)
                line = raw.decode(errors="replace").rstrip("\n")
                if line.startswith(prefix):
                    return line
        return None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; none when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
