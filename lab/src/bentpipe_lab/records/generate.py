"""Generator of `generated.py`: the types of the binary's records, from the JSON Schemas in `schemas/`.

`make types` writes the file, and a test fails when it is not what the schemas give. A schema's objects become
`TypedDict`s, or frozen dataclasses where a whole file of them is read at once (the summary's lines).
"""

import json
import keyword
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bentpipe_lab.net import host

SCHEMAS = {"records": "TypedDict", "summary": "dataclass"}
"""Which schemas, and what their objects become."""
TARGET = Path(__file__).with_name("generated.py")
HEAD = '''\
"""Types of the binary's records, generated from `schemas/` by `make types`; not to be edited."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict
'''
_PLAIN = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}

Schema = Mapping[str, Any]


def generated(directory: Path) -> str:
    """The text of `generated.py` for the schemas in a directory."""
    definitions: dict[str, tuple[str, Schema]] = {}
    for name, form in SCHEMAS.items():
        schema = json.loads((directory / f"{name}.json").read_text())
        for defined, its_schema in schema["$defs"].items():
            definitions.setdefault(defined, (form, its_schema))
    parts = [HEAD]
    for defined in _in_order({name: schema for name, (_, schema) in definitions.items()}):
        form, schema = definitions[defined]
        parts.append("\n\n" + "\n".join(_definition(defined, schema, form)) + "\n")
    return "".join(parts)


def _in_order(schemas: Mapping[str, Schema]) -> list[str]:
    """Names so that each comes after those that it is made of."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for used in sorted(set(_references(schemas[name]))):
                if used != name:
                    visit(used)
            done[name] = None

    for name in sorted(schemas):
        visit(name)
    return list(done)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield str(schema["$ref"]).rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _definition(name: str, schema: Schema, form: str) -> list[str]:
    if "properties" not in schema:
        variants = _variants(name, schema)
        return [*variants, *_wrapped(f"{name} = {_type(schema, name)}"), *_docstring(schema, "")]
    fields = schema["properties"]
    required = set(schema.get("required", ()))
    if form == "dataclass":
        head = ["@dataclass(frozen=True)", f"class {name}:"]
    elif any(keyword.iskeyword(field) for field in fields):
        items = ", ".join(f"{field!r}: {_field(value, field in required)}" for field, value in fields.items())
        return [*_wrapped(f"{name} = TypedDict({name!r}, {{{items}}})"), *_docstring(schema, "")]
    else:
        head = [f"class {name}(TypedDict):"]
    lines = [*head, *_docstring(schema, "    ", name), ""]
    for field, value in fields.items():
        lines.append(f"    {field}: {_field(value, field in required or form == 'dataclass')}")
        lines += _docstring(value, "    ")
    return lines


def _variants(name: str, schema: Schema) -> list[str]:
    """Classes for objects that stand in a union without a name."""
    lines: list[str] = []
    for variant in _alternatives(schema):
        if "properties" in variant and "$ref" not in variant:
            lines += [*_definition(_variant_name(name, variant), variant, "TypedDict"), "", ""]
    return lines


def _variant_name(name: str, variant: Schema) -> str:
    constant = next((str(value["const"]) for value in variant["properties"].values() if "const" in value), "other")
    return name + "".join(word.capitalize() for word in constant.split("_"))


def _alternatives(schema: Schema) -> Sequence[Schema]:
    found: Sequence[Schema] = schema.get("anyOf") or schema.get("oneOf") or ()
    return found


def _field(schema: Schema, required: bool) -> str:
    return _type(schema) if required else f"NotRequired[{_type(schema)}]"


def _type(schema: Schema, name: str = "") -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return f'Literal["{schema["const"]}"]'
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    if alternatives := _alternatives(schema):
        if all("const" in each for each in alternatives):
            return f"Literal[{', '.join(json.dumps(each['const']) for each in alternatives)}]"
        types = [
            _variant_name(name, each) if "properties" in each and "$ref" not in each else _type(each)
            for each in alternatives
        ]
        return " | ".join(dict.fromkeys(types))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"list[{_type(schema['items'])}]"
    if kind == "object":
        return f"Mapping[str, {_type(schema.get('additionalProperties', {'type': 'integer'}))}]"
    return _PLAIN[str(kind)]


def _docstring(schema: Schema, indent: str, name: str = "") -> list[str]:
    text = " ".join(str(schema.get("description") or (name and f"{name}, as the binary writes it.")).split())
    if not text:
        return []
    return textwrap.wrap(f'"""{text}"""', 118, initial_indent=indent, subsequent_indent=indent)


def _wrapped(line: str) -> list[str]:
    if len(line) <= 120:
        return [line]
    name, _, value = line.partition(" = ")
    return [f"{name} = (", *textwrap.wrap(value, 114, initial_indent="    ", subsequent_indent="    "), ")"]


if __name__ == "__main__":
    TARGET.write_text(generated(host.REPOSITORY / "schemas"))
