"""SOCKS5 at the terminal: by IPv4, by IPv6 and by name, which the gateway resolves."""

from pathlib import Path

import pytest

from bentpipe_lab.errors import LabError
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import PRIVATE4, SERVER4, SERVER6
from bentpipe_lab.systems.tunnel import SOCKS, Bentpipe
from bentpipe_lab.workloads.programs import curl

PRIVATE_NAME = "private.bentpipe.test"


def fetch(tunnel: Bentpipe, host: str, target: Path, scheme: str = "--socks5-hostname") -> None:
    """Fetch a file by curl through the terminal's proxy."""
    url = f"http://{host}/2MB"
    proxy = f"{SOCKS[0]}:{SOCKS[1]}"
    tunnel.path.terminal.run("curl", "-sS", "--fail", "-g", "--max-time", "90", scheme, proxy, "-o", target, url)


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]", NAME])
def test_fetch(tunnel: Bentpipe, tmp_path: Path, host: str) -> None:
    fetch(tunnel, host, tmp_path / "got")
    assert curl.sha256(tmp_path / "got") == tunnel.path.origin.objects["2MB"].sha256


@pytest.mark.parametrize(
    "host", ["nowhere.bentpipe.test", f"{SERVER4}:9", PRIVATE4, "127.0.0.1", "[::1]", PRIVATE_NAME]
)
def test_what_cannot_be_had_is_an_error(tunnel: Bentpipe, tmp_path: Path, host: str) -> None:
    """A name that does not exist, a closed port, and what the gateway must not reach, by address and by name."""
    with tunnel.hosts.open("a") as hosts:
        hosts.write(f"{PRIVATE4} {PRIVATE_NAME}\n")
    with pytest.raises(LabError) as raised:
        fetch(tunnel, host, tmp_path / "got")
    assert "timed out" not in str(raised.value)
    assert not (tmp_path / "got").exists()
