"""What `bentpipe-lab stacks` does: install, list."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bentpipe_lab.stacks import cache as caches
from bentpipe_lab.stacks.manifest import Manifest, all_manifests, manifest


def install(names: tuple[str, ...], cache: Path | None, console: Console) -> int:
    """Install implementations, all where none is named; 1 when one of those that were named is not to be had."""
    where = caches.root(cache)
    chosen = [manifest(name) for name in names] or list(all_manifests().values())
    missing = 0
    for each in chosen:
        before = caches.installation(where, each)
        if before is not None and before.version:
            console.print(f"{each.name}: {before.version} is installed", highlight=False)
            continue
        console.print(f"{each.name}: installing {each.version}", highlight=False)
        done = caches.install(where, each)
        missing += done.version is None
        said = f"{done.version}, {done.took_s:.0f} s" if done.version else f"not installed: {done.why}"
        console.print(f"{each.name}: {said}", highlight=False, markup=False, soft_wrap=True)
    return 1 if missing and names else 0


def show(cache: Path | None, console: Console) -> int:
    """Print what there is: roles, protocols, knobs, and why something is not installed."""
    where = caches.root(cache)
    table = Table(title=str(where), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("name", "stack", "version", "client", "server", "controllers", "knobs", "windows", "installed"):
        table.add_column(name)
    for each in all_manifests().values():
        table.add_row(
            each.name, each.stack, each.version,
            *(" ".join(each.protocols.get(role, ["-"])) for role in ("client", "server")),
            " ".join(each.controllers), " ".join(each.knobs), each.windows, _state(where, each),
        )  # fmt: skip
    console.print(table)
    return 0


def _state(cache: Path, each: Manifest) -> str:
    found = caches.installation(cache, each)
    if found is None:
        return f"no; `bentpipe-lab stacks install {each.name}`"
    return found.version or f"no: {found.why}"
