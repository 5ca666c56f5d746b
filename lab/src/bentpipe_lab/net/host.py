"""What the machine must allow, what the lab changes on it for the length of a run, and what it left behind."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bentpipe_lab.errors import LabError, MissingCapabilityError
from bentpipe_lab.net import netns

STATE = Path("/run/bentpipe-lab")
ALLOWED_CONTROL = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
AVAILABLE_CONTROL = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
REPOSITORY = Path(__file__).resolve().parents[4]


def binary() -> Path:
    """The bentpipe binary: $BENTPIPE, or the release build of this checkout."""
    path = Path(os.environ.get("BENTPIPE", REPOSITORY / "target/release/bentpipe")).absolute()
    if not os.access(path, os.X_OK):
        raise LabError(f"there is no program at {path}: build it (`cargo build --release`) or set BENTPIPE")
    return path


def require(programs: Sequence[str] = ("ip", "nsenter", "nginx", "curl", "openssl")) -> None:
    """Raise unless namespaces and TUN devices can be made here and the programs are installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingCapabilityError(f"not installed: {', '.join(missing)}; `make setup` installs them on Debian")
    if os.geteuid() != 0:
        raise MissingCapabilityError(
            "network namespaces need root: use `make`, which makes a user namespace where the system allows it"
        )
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        raise MissingCapabilityError(
            f"/dev/net/tun cannot be opened ({error.strerror}): run as root, or let this user open it"
            " (on Debian it is open to everybody unless somebody closed it)"
        ) from error
    with owned_run() as run:
        trial = netns.Namespace(f"{run}-trial")
        try:
            trial.create()
        except LabError as error:
            raise MissingCapabilityError(f"a network namespace cannot be made here: {error}") from error
        finally:
            trial.delete()


@contextmanager
def owned_run() -> Iterator[str]:
    """A name for a run which nobody else has, and a lock on it that ends with this process, however it ends."""
    STATE.mkdir(parents=True, exist_ok=True)
    run = f"bp{os.getpid()}-{secrets.token_hex(2)}"
    path = STATE / f"{run}.lock"
    part = path.with_suffix(".part")
    with part.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part.replace(path)  # under its own name it is locked from the first moment on
        try:
            yield run
        finally:
            path.unlink(missing_ok=True)


def clean_leftovers() -> list[str]:
    """Remove the namespaces of runs whose owner died without cleaning up; return their names."""
    removed: list[str] = []
    for path in sorted(STATE.glob("*.lock")) if STATE.is_dir() else []:
        try:
            opened = path.open("r")
        except FileNotFoundError:
            continue  # a run that has ended since, or that somebody else has cleaned up after
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for name in sorted(namespaces_of(path.stem)):
                netns.Namespace(name).delete()
                removed.append(name)
            path.unlink(missing_ok=True)
    return removed


def namespaces_of(run: str) -> set[str]:
    """The namespaces that exist now and belong to a run."""
    return {name for name in netns.existing() if name.startswith(f"{run}-")}


@contextmanager
def allowed_congestion_control(name: str) -> Iterator[str | None]:
    """Have the host allow a TCP congestion controller inside namespaces, for as long as this lasts.

    Namespaces may only choose what the host's net.ipv4.tcp_allowed_congestion_control lists. Yields a
    sentence for the person at the terminal when the list was changed or could not be. Several runs may need
    it at once: each holds a shared lock on the note of how the list was, and the last one restores it.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "congestion-control").open("a+") as note:
        with _changing_the_list():
            note_for_person = _allow(name, note.fileno())
            fcntl.flock(note, fcntl.LOCK_SH)
        try:
            yield note_for_person
        finally:
            with _changing_the_list():
                _restore(note.fileno())


@contextmanager
def _changing_the_list() -> Iterator[None]:
    """One run at a time, for a moment."""
    with (STATE / "congestion-control.change").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _allow(name: str, note: int) -> str | None:
    """Add `name` to the list; the list as it was is written to `note`, so that the last user can restore it."""
    try:
        allowed = ALLOWED_CONTROL.read_text().split()
    except FileNotFoundError:
        return f"this is not the host's own network namespace: whether TCP {name} is allowed inside cannot be seen"
    if name in allowed:
        return None
    before = " ".join(allowed)
    try:
        ALLOWED_CONTROL.write_text(" ".join([*allowed, name]))
    except OSError as error:
        return (
            f"the host allows only TCP {before} inside namespaces and the list cannot be changed ({error.strerror});"
            f" as root: sysctl net.ipv4.tcp_allowed_congestion_control='{before} {name}'"
        )
    os.ftruncate(note, 0)
    os.pwrite(note, before.encode(), 0)
    return f"TCP {name} was not allowed inside namespaces (host list: {before}); added it until the end of this run"


def _restore(note: int) -> None:
    try:
        fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # somebody else still needs it, and will restore it
    before = os.pread(note, 4096, 0).decode()
    if before:
        ALLOWED_CONTROL.write_text(before)
        os.ftruncate(note, 0)
