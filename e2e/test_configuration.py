"""Bad input is refused with the file, the field, the value and what would be right, before anything starts."""

import subprocess
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, SOCKS, Bentpipe

BAD_USE = 2


def refused(where: Namespace, *words: str | Path) -> str:
    """Run bentpipe where it must refuse to start; what it said."""
    done = subprocess.run(
        where.command([host.binary(), *words]), capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == BAD_USE, f"exit code {done.returncode}: {done.stderr}"
    return done.stderr


@pytest.mark.parametrize(
    ("edit", "field", "value"),
    [
        (("0.0.0.0:4433", "0.0.0.0"), "listen", "0.0.0.0"),
        (("20 Mbit/s", "20 Mbps"), "expected_rate", "20 Mbps"),
        (("256 MiB", "lots"), "memory", "lots"),
        (('allow = ["10', 'allow = ["10.0.0.0/99", "10'), "allow", "10.0.0.0/99"),
        (("[transport]", "[transport]\ncolour = 3"), "colour", ""),
        (("[transport]", '[transport]\ncontroller = "warp"'), "controller", "warp"),
        (("[transport]", '[transport]\ncontroller = "fixed"'), "contracted_rate", "is missing"),
    ],
)
def test_gateway(tunnel: Bentpipe, edit: tuple[str, str], field: str, value: str) -> None:
    right = tunnel.gateway_config.read_text().replace("100 Mbit/s", "20 Mbit/s")
    config = tunnel.gateway_config.with_name("edited.toml")
    config.write_text(right.replace(*edit))
    assert config.read_text() != right
    said = refused(tunnel.path.gateway, "gateway", "--config", config)
    assert str(config) in said
    assert field in said
    assert value in said


@pytest.mark.parametrize(
    ("edit", "field", "value"),
    [
        (('"lan0"', '"a name that is too long"'), "interfaces", "too long"),
        ((f"{SOCKS[0]}:{SOCKS[1]}", "everywhere"), "listen", "everywhere"),
        (("[transport]", "[transprot]"), "transprot", ""),
    ],
)
def test_terminal(tunnel: Bentpipe, edit: tuple[str, str], field: str, value: str) -> None:
    right = tunnel.terminal_config.read_text()
    config = tunnel.terminal_config.with_name("edited.toml")
    config.write_text(right.replace(*edit))
    assert config.read_text() != right
    said = refused(tunnel.path.terminal, "terminal", "--config", config)
    assert str(config) in said
    assert field in said
    assert value in said


def test_an_interface_that_is_not_there_is_named(tunnel: Bentpipe) -> None:
    config = tunnel.terminal_config.with_name("elsewhere.toml")
    config.write_text('[ingress.transparent]\ninterfaces = ["lan9"]\nport = 4499\n')
    terminal = tunnel.path.start("elsewhere", tunnel.path.terminal, _terminal(config))
    assert terminal.wait() != 0
    assert "lan9" in terminal.tail()


def test_a_file_that_is_not_there(tunnel: Bentpipe) -> None:
    assert "nowhere.toml" in refused(tunnel.path.gateway, "gateway", "--config", "nowhere.toml")
    assert "nowhere.toml" in refused(tunnel.path.terminal, "terminal", "--config", "nowhere.toml")


@pytest.mark.parametrize("line", ["", "https://example.test", "bentpipe://", "bentpipe://gateway:1/#?"])
def test_an_enrolment_line_that_is_none(tunnel: Bentpipe, tmp_path: Path, line: str) -> None:
    refused(tunnel.path.terminal, "terminal", "join", "--config", tmp_path / "terminal.toml", line)


def test_a_port_in_use_is_named(tunnel: Bentpipe) -> None:
    gateway = tunnel.path.start("second-gateway", tunnel.path.gateway, _gateway(tunnel.gateway_config))
    assert gateway.wait() != 0
    assert f":{GATEWAY_PORT}" in gateway.tail()
    terminal = tunnel.path.start("second-terminal", tunnel.path.terminal, _terminal(tunnel.terminal_config))
    assert terminal.wait() != 0
    assert f"{SOCKS[0]}:{SOCKS[1]}" in terminal.tail()


def _gateway(config: Path) -> list[str | Path]:
    return [host.binary(), "gateway", "--config", config.absolute()]


def _terminal(config: Path) -> list[str | Path]:
    return [host.binary(), "terminal", "--config", config.absolute()]
