"""The types that are generated from the binary's schemas."""

import json
from pathlib import Path

from bentpipe_lab.net import host
from bentpipe_lab.records import generate


def test_the_types_are_what_the_schemas_give() -> None:
    assert generate.TARGET.read_text() == generate.generated(host.REPOSITORY / "schemas"), "make types"


def test_another_schema_gives_other_types(tmp_path: Path) -> None:
    for name in generate.SCHEMAS:
        schema = json.loads((host.REPOSITORY / "schemas" / f"{name}.json").read_text())
        if name == "records":
            schema["$defs"]["TransferRecord"]["properties"]["speed"] = {"type": ["number", "null"]}
        (tmp_path / f"{name}.json").write_text(json.dumps(schema))
    assert "    speed: NotRequired[float | None]" in generate.generated(tmp_path)
