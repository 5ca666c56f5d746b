"""Programs that systems and workloads drive: where each is, how it is installed, and which version it is.

Programs that Debian has come from Debian. The others are built here, from versions pinned by a lock with hashes, into
a cache: `$BENTPIPE_LAB_CACHE`, or `bentpipe-lab` below the user's cache directory.
"""

import hashlib
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bentpipe_lab.errors import MissingCapabilityError, ProgramError
from bentpipe_lab.net import host

SOURCES = host.REPOSITORY / "lab/programs"
"""A Go module each, with the versions and hashes of what it builds."""
SYSTEM_PLACES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian keeps programs that are not on everybody's PATH."""
INSTALL_S = 3600.0


def cache() -> Path:
    """Where programs that are built here are kept."""
    chosen = os.environ.get("BENTPIPE_LAB_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "bentpipe-lab")


@dataclass(frozen=True)
class Program(ABC):
    """A program that somebody else wrote."""

    name: str
    """Its command."""
    wanted_for: str = ""
    """What needs it, when it is not plain."""

    @abstractmethod
    def path(self) -> Path | None:
        """Where it is; None when it is not installed."""

    @abstractmethod
    def remedy(self) -> str:
        """How a person installs it."""

    @abstractmethod
    def install(self) -> None:
        """Install it; raise with what went wrong."""

    @abstractmethod
    def version(self) -> str:
        """Which version is installed, or would be."""

    def found(self) -> Path:
        """Where it is; raise with the remedy when it is not installed."""
        path = self.path()
        if path is None:
            raise MissingCapabilityError(f"{self.name} is not installed: {self.remedy()}")
        return path


@dataclass(frozen=True)
class Debian(Program):
    """A program of a Debian package."""

    package: str = ""
    """The package; named like the program by default."""

    def path(self) -> Path | None:
        """On PATH, or where Debian keeps programs of administrators."""
        found = shutil.which(self.name, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_PLACES]))
        return None if found is None else Path(found)

    def remedy(self) -> str:
        """By apt."""
        return f"apt-get install --no-install-recommends {self._package}"

    def install(self) -> None:
        """By apt, as root."""
        if os.geteuid() != 0:
            raise MissingCapabilityError(f"{self.name} is a Debian package, which root installs: {self.remedy()}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for argv in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", self._package],
        ):
            _run(argv, self.name, environment=environment)

    def version(self) -> str:
        """The package's."""
        done = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", self._package],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return f"Debian {done.stdout.strip() or 'package'} {self._package}".replace("Debian package", "Debian")

    @property
    def _package(self) -> str:
        return self.package or self.name


@dataclass(frozen=True)
class Go(Program):
    """A program that is built from Go modules, whose versions and hashes are in `lab/programs/NAME`."""

    source: str = ""
    """Its directory below `lab/programs`."""
    target: str = "."
    """The package that is built."""
    module: str = ""
    """The module whose version counts."""
    tags: Sequence[str] = ()

    def path(self) -> Path | None:
        """In the cache, built from the very same sources."""
        built = self._built()
        return built if built.is_file() else None

    def remedy(self) -> str:
        """By the lab, with Go."""
        return f"`bentpipe-lab programs install {self.name}`"

    def install(self) -> None:
        """Build it; the modules are checked against `go.sum`."""
        if shutil.which("go") is None:
            raise MissingCapabilityError(
                f"{self.name} is built by Go 1.26 or newer, which is not installed: https://go.dev has it"
            )
        built = self._built()
        built.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=built.parent) as directory:
            made = Path(directory, self.name)
            tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
            _run(
                ["go", "build", "-mod=readonly", "-trimpath", *tags, "-o", str(made), self.target],
                self.name, cwd=SOURCES / self.source,
            )  # fmt: skip
            made.rename(built)

    def version(self) -> str:
        """The module's, from `go.mod`."""
        for line in (SOURCES / self.source / "go.mod").read_text().splitlines():
            words = [word for word in line.split() if word != "tool"]
            if self.module in words[:-1]:
                return f"{self.module} {words[words.index(self.module) + 1]}"
        return self.module

    def _built(self) -> Path:
        """Named after everything that it is made of."""
        digest = hashlib.sha256(repr((self.target, tuple(self.tags))).encode())
        for path in sorted((SOURCES / self.source).iterdir()):
            digest.update(path.read_bytes())
        return cache() / f"{self.name}-{digest.hexdigest()[:12]}" / self.name


@dataclass(frozen=True)
class Cargo(Program):
    """A program that is built from a published Rust crate, with the versions of its own lock file."""

    pinned: str = ""
    """The crate's version."""

    def path(self) -> Path | None:
        """On PATH, or in the cache."""
        built = self._root / "bin" / self.name
        if built.is_file():
            return built
        found = shutil.which(self.name)
        return None if found is None else Path(found)

    def remedy(self) -> str:
        """By the lab, with Cargo."""
        return f"`bentpipe-lab programs install {self.name}`"

    def install(self) -> None:
        """Build it; Cargo checks the hashes of what it fetches."""
        _run(
            ["cargo", "install", "--locked", "--version", self.pinned, "--root", str(self._root), self.name], self.name
        )

    def version(self) -> str:
        """The crate's."""
        return f"{self.name} {self.pinned}"

    @property
    def _root(self) -> Path:
        return cache() / f"{self.name}-{self.pinned}"


def absent(programs: Iterable[Program]) -> list[Program]:
    """Those that are not installed."""
    return [program for program in programs if program.path() is None]


def require(what: str, programs: Iterable[Program]) -> None:
    """Raise unless all are installed; the error says how to install each that is not."""
    lacking = absent(programs)
    if lacking:
        raise MissingCapabilityError(
            "; ".join(f"{what} needs {program.name}, which is not installed: {program.remedy()}" for program in lacking)
        )


def _run(argv: Sequence[str], name: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=INSTALL_S,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise MissingCapabilityError(f"{name} cannot be installed: {argv[0]} is not there") from error
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"installation of {name} took more than {INSTALL_S:.0f} s: `{' '.join(argv)}`") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise ProgramError(f"installation of {name} failed ({done.returncode}), `{' '.join(argv)}`: {said}")
