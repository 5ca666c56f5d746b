"""What the kernel says of its preemption."""

import pytest

from bentpipe_lab.campaign.preemption import advice, preemption, told

DYNAMIC = "#1 SMP PREEMPT_DYNAMIC Debian"


@pytest.mark.parametrize(
    ("now", "boot", "version", "configuration", "mode"),
    [
        ("none voluntary (full) lazy \n", "quiet preempt=none", DYNAMIC, "CONFIG_PREEMPT_NONE=y", "full"),
        ("", "quiet preempt=voluntary ro", DYNAMIC, "CONFIG_PREEMPT_NONE=y", "voluntary"),
        ("", "quiet", "#1 SMP PREEMPT_RT Debian", "", "full"),
        ("", "quiet", "#1 SMP PREEMPT Debian", "", "full"),
        ("", "quiet", DYNAMIC, "CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_NONE=y\n", "none"),
        ("", "quiet", DYNAMIC, "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n", "voluntary"),
        ("", "quiet", DYNAMIC, "CONFIG_PREEMPT=y\nCONFIG_PREEMPT_COUNT=y\n", "full"),
        ("", "quiet", DYNAMIC, "", "unknown"),
    ],
)
def test_the_best_source_counts(now: str, boot: str, version: str, configuration: str, mode: str) -> None:
    assert told(now, boot, version, configuration) == mode


def test_who_can_do_something_is_told() -> None:
    assert "preempt=full" in (advice("none") or "")
    assert advice("full") is None
    assert advice("unknown") is None


def test_this_machine_says_something() -> None:
    assert preemption() in ("none", "voluntary", "lazy", "full", "unknown")
