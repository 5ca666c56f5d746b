"""Manifests of QUIC implementations: `implementations/NAME/manifest.toml`, read and checked."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.registry import unknown

IMPLEMENTATIONS = host.REPOSITORY / "implementations"
MANIFEST, INSTALL, RUN = "manifest.toml", "install", "run_endpoint"
IMAGE = "image"
"""The directory of what installs and runs images."""
IMAGES = "BENTPIPE_IMAGES"
"""The environment variable with the file that names images made for the interop runner."""
ROLES = ("client", "server")
PROTOCOLS = {"h3": "http3", "hq-interop": "handshake"}
"""Application protocols (ALPN), each with the interop runner's test case that speaks it; the first that both ends
speak is taken."""
KNOBS = ("CC", "IW", "ACK_THRESH", "MAX_DATA", "MAX_STREAM_DATA", "SEND_BUFFER")
"""What may be set of an endpoint: controller; initial window, packets; packets for one acknowledgement; receive windows
of connection and stream, bytes; send buffer, bytes. What a stack does not have is refused, never ignored."""
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "name": str, "stack": str, "version": str, "licence": str, "language": str, "from": str, "roles": list,
    "client": list, "server": list, "controllers": list, "knobs": list, "windows": str, "key_log": list, "qlog": list,
    "starts_in_s": (int, float), "remarks": str,
}  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What is known of an implementation before it is installed."""

    name: str
    stack: str
    """The QUIC state machine in it: implementations of one stack are not independent."""
    version: str
    licence: str
    language: str
    provenance: str
    """Where it is from; hashes stand in its lock file or in `install`."""
    protocols: Mapping[str, Sequence[str]]
    """Application protocols (ALPN) by role; a role that it does not have is absent."""
    controllers: Sequence[str]
    """Congestion controllers, the default first."""
    knobs: Sequence[str]
    windows: str
    """Receive windows as shipped, connection / stream."""
    key_log: Sequence[str]
    """Roles in which it writes TLS secrets."""
    qlog: Sequence[str]
    """Roles in which it writes qlogs."""
    starts_in_s: float
    """About how long it takes to be ready."""
    remarks: str
    place: str
    """Its directory below `implementations`."""

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return IMPLEMENTATIONS / self.place

    def refuses(self, role: str, knobs: Mapping[str, str]) -> str | None:
        """Why it cannot be run so; None when it can."""
        if role not in self.protocols:
            return f"{self.name} is no {role}"
        for knob, value in knobs.items():
            if knob not in self.knobs:
                return f"{self.name} has no {knob}: it honours {', '.join(self.knobs) or 'none'}"
            if knob == "CC" and value not in self.controllers:
                return f"{self.name} has no controller {value!r}: it has {', '.join(self.controllers)}"
        return None


@cache
def all_manifests() -> Mapping[str, Manifest]:
    """Every implementation, by name."""
    found = [read(path) for path in sorted(IMPLEMENTATIONS.glob(f"*/{MANIFEST}"))]
    if chosen := os.environ.get(IMAGES):
        found += images(Path(chosen))
    return {manifest.name: manifest for manifest in found}


def images(path: Path) -> list[Manifest]:
    """Images made for the interop runner: a table each, with its reference and the protocols of its roles."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{path}, which ${IMAGES} names: {error}") from error
    found = []
    for name, table in tables.items():
        if not isinstance(table, Mapping) or not isinstance(table.get("image"), str):
            raise LabError(f'{path}: [{name}] needs image = "REFERENCE", best with its digest')
        if (IMPLEMENTATIONS / name).exists():
            raise LabError(f"{path}: [{name}] has the name of an implementation that is there; choose another")
        fields = dict(table)
        reference = fields.pop("image")
        whole = {"name": name, "stack": name, "licence": "its own", "language": "unknown", "from": reference, **fields}
        where = path / name / MANIFEST
        found.append(_parsed(where, {**whole, "version": reference, "roles": list(_roles(fields))}, place=IMAGE))
    return found


def _roles(fields: Mapping[str, Any]) -> Iterator[str]:
    return (role for role in ROLES if role in fields)


def manifest(name: str) -> Manifest:
    """An implementation; an error with the nearest name when there is none."""
    known = all_manifests()
    if name not in known:
        raise unknown("implementation", name, known)
    return known[name]


def common_protocol(client: Manifest, server: Manifest) -> str | None:
    """The protocol that a pair speaks; None when they have none in common."""
    both = set(client.protocols.get("client", ())) & set(server.protocols.get("server", ()))
    return next((protocol for protocol in PROTOCOLS if protocol in both), None)


def read(path: Path) -> Manifest:
    """Read one manifest."""
    try:
        table = tomllib.loads(path.read_text())
        return _parsed(path, table)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{path}: {error}") from error


def _parsed(path: Path, table: Mapping[str, Any], place: str | None = None) -> Manifest:
    for key, value in table.items():
        if key not in _FIELDS:
            raise LabError(f"{path}: {unknown('field', key, _FIELDS)}")
        if not isinstance(value, _FIELDS[key]):
            raise LabError(f"{path}: {key} = {value!r} has another type than that field has")
    for key in ("name", "stack", "version", "licence", "language", "from", "roles"):
        if key not in table:
            raise LabError(f"{path}: {key} is missing")
    if table["name"] != path.parent.name:
        raise LabError(f"{path}: name = {table['name']!r}, but its directory is {path.parent.name!r}")
    for key, known in (("roles", ROLES), ("client", PROTOCOLS), ("server", PROTOCOLS), ("knobs", KNOBS)):
        for value in table.get(key, []):
            if value not in known:
                raise LabError(f"{path}: {unknown(key, value, dict.fromkeys(known))}")
    return Manifest(
        name=table["name"],
        stack=table["stack"],
        version=table["version"],
        licence=table["licence"],
        language=table["language"],
        provenance=table["from"],
        protocols={role: table.get(role, []) for role in table["roles"]},
        controllers=table.get("controllers", []),
        knobs=table.get("knobs", []),
        windows=table.get("windows", ""),
        key_log=table.get("key_log", []),
        qlog=table.get("qlog", []),
        starts_in_s=float(table.get("starts_in_s", 1)),
        remarks=table.get("remarks", ""),
        place=place or table["name"],
    )
