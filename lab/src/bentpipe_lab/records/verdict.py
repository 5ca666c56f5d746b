"""How a measurement ended. Failures are data: a run always has exactly one of these verdicts."""

from enum import StrEnum


class Verdict(StrEnum):
    """The fixed list of ways in which a run can end."""

    OK = "ok"
    REFUSED = "refused"
    """The connection was answered with a reset before it was established."""
    RESET = "reset"
    """An established connection was reset."""
    UNREACHABLE = "unreachable"
    """The network said that there is no way to the destination."""
    TIMED_OUT = "timed out"
    """Nothing at all arrived within the time a run is given."""
    STALLED = "stalled"
    """Bytes arrived, then none for longer than a run waits; the sample tells how many had arrived."""
    CUT_SHORT = "cut short"
    """The connection ended cleanly before all bytes had arrived; the sample tells how many had."""
    WRONG_CONTENT = "wrong content"
    """All bytes arrived and are not those that were sent."""
    FELL_BACK = "fell back"
    """It ended well over another protocol than the one that was asked for."""
    EMULATOR_LATE = "emulator late"
    """The emulator's certificate is invalid: the machine could not keep the link's time."""
    PROGRAM_MISSING = "program missing"
    """A program that is needed is not installed; the sample's detail tells how it is."""
    NOT_IN_PATH = "not in path"
    """The system ran, but the server saw the client without it."""
    FAILED = "failed"
    """Anything else; the sample's detail tells what."""
