"""The Debian package, as far as it can be looked at without installing it (deploy/try-deb does that)."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from bentpipe_lab.net import host

DEPLOY = Path(__file__).parents[1] / "deploy"
COMPLETIONS = (
    "bash-completion/completions/bentpipe",
    "zsh/vendor-completions/_bentpipe",
    "fish/vendor_completions.d/bentpipe.fish",
)


def output(*words: str | Path) -> str:
    """Run a program that has to succeed; what it says."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program in ("dpkg-deb", "objdump", "strip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} builds packages, and is not installed")
    built = output(DEPLOY / "deb", host.binary(), tmp_path_factory.mktemp("package"))
    return Path(built.strip())


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package would bring, below a directory."""
    root = tmp_path_factory.mktemp("tree")
    output("dpkg-deb", "-x", package, root)
    return root


@pytest.mark.long
def test_it_names_what_the_binary_needs(package: Path) -> None:
    depends = output("dpkg-deb", "-f", package, "Depends").strip().split(", ")
    assert "adduser" in depends
    needs_libc = any(need.startswith("libc6 (>= 2.") for need in depends)
    is_linked = "NEEDED" in output("objdump", "-p", host.binary())
    assert needs_libc == is_linked, depends


@pytest.mark.long
def test_it_has_pages_completions_and_units_for_the_binary_in_it(tree: Path) -> None:
    binary = tree / "usr/bin/bentpipe"
    assert output(binary, "--version") == output(host.binary(), "--version")
    for page in ("bentpipe", "bentpipe-terminal", "bentpipe-gateway-init", "bentpipe-status"):
        text = gzip.decompress((tree / f"usr/share/man/man1/{page}.1.gz").read_bytes()).decode()
        assert ".SH NAME" in text, page
    for completions in COMPLETIONS:
        assert "terminal" in (tree / "usr/share" / completions).read_text(), completions
    for unit in ("terminal", "gateway"):
        text = (tree / f"usr/lib/systemd/system/bentpipe-{unit}.service").read_text()
        commands = [line.split("=")[1].split()[0] for line in text.splitlines() if line.startswith("ExecStart")]
        assert set(commands) == {"/usr/bin/bentpipe"}


@pytest.mark.long
def test_its_files_belong_to_root_and_its_scripts_can_be_read(package: Path, tmp_path: Path) -> None:
    for line in output("dpkg-deb", "-c", package).splitlines():
        mode, owner = line.split()[:2]
        assert owner == "root/root", line
        assert mode[8] == "-", line
        assert "s" not in mode, line
    output("dpkg-deb", "-e", package, tmp_path)
    for script in ("postinst", "prerm", "postrm"):
        output("sh", "-n", tmp_path / script)


@pytest.mark.parametrize(("action", "released"), [("remove", True), ("upgrade", False)])
def test_removing_it_lets_go_what_a_terminal_has_left_held_back(tmp_path: Path, action: str, *, released: bool) -> None:
    """Nobody could when the program is gone; an upgrade leaves a terminal's rules alone."""
    said = tmp_path / "said"
    for program in ("bentpipe", "systemctl"):
        stub = tmp_path / program
        stub.write_text(f'#!/bin/sh\necho "{program} $*" >>{said}\n')
        stub.chmod(0o755)
    configured = tmp_path / "etc/bentpipe/terminal.toml"
    configured.parent.mkdir(parents=True)
    configured.touch()
    script = f"mount --bind {tmp_path}/etc /etc && PATH={tmp_path}:$PATH sh {DEPLOY}/prerm {action}"
    output("unshare", "--mount", "sh", "-c", script)
    assert ("bentpipe terminal release\n" in (said.read_text() if said.exists() else "")) == released
