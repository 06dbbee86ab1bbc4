"""The published JSON Schemas, made from the records by which documents are read and written.

`python -m published_schemas` writes the file of one box, to which the file of several boxes refers. The
descriptions of keys, and keys that no record reads, stay as they are in the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gputui.inventory import document, typed_json
from gputui.inventory.typed_json import Record

FILE = Path(document.__file__).with_name("ls.schema.json")
DEFINED = {
    "device": document.DEVICE,
    "claim": document.CLAIM,
    "process": document.PROCESS,
    "waiter": document.WAITER,
    "topology": document.TOPOLOGY,
    "telemetry": document.TELEMETRY,
}
INLINE = (document.ANCESTOR, document.LOCALITY, document.NIC, document.TROUBLE, document.HOST_LOAD)
NULL_ELSEWHERE = ("vendor",)
"""Keys that are never null where gputui has read the device, and always null where Slurm reports it."""
PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    typed_json.Moment: {"type": "string", "format": "date-time"},
    typed_json.Celsius: {"type": "integer", "minimum": -273},
    typed_json.Positive: {"type": "integer", "minimum": 1},
    document.SCHEMA_KEY: {"const": document.SCHEMA},
}


def published() -> dict[str, Any]:
    """The schema of one box, from its file."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def made() -> dict[str, Any]:
    """The schema of one box, made from the records."""
    schema = published()
    described = {name: _object(record, schema["$defs"][name]) for name, record in DEFINED.items()}
    return {**_object(document.BOX, schema), "$defs": {**schema["$defs"], **described}}


def _object(record: Record[Any], before: dict[str, Any]) -> dict[str, Any]:
    properties, needed = dict(before.get("properties", {})), set(before.get("required", ()))
    for name, key, _, must in record.rows:
        kind = record.kind(name) | None if key in NULL_ELSEWHERE else record.kind(name)
        properties[key] = _type(kind, properties.get(key, {}))
        needed |= {key} if must else set()
    required = [key for key in properties if key in needed]
    return {**before, **({"required": required} if required else {}), "properties": properties}


def _type(kind: Any, before: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type, with the descriptions of the earlier schema."""
    parts = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        (inner,) = [part for part in parts if part is not NoneType]
        return _or_null(inner, before)
    found = _definite(kind, before)
    return {**found, **({"description": before["description"]} if "description" in before else {})}


def _or_null(kind: Any, before: dict[str, Any]) -> dict[str, Any]:
    inside = next((each for each in before.get("anyOf", ()) if each != {"type": "null"}), before)
    found = _type(kind, inside)
    if "enum" in found:
        return {**found, "enum": [*found["enum"], None]}
    if found.get("type") in ("object", "array") or "$ref" in found:
        outside = {
            key: value for key, value in before.items() if key == "description" and inside is not before
        }
        return {"anyOf": [found, {"type": "null"}], **outside}
    return {**found, "type": [found["type"], "null"]}


def _definite(kind: Any, before: dict[str, Any]) -> dict[str, Any]:
    parts, origin = get_args(kind), get_origin(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind is object:
        return before
    if origin is Annotated:
        return _definite(parts[0], before)
    if origin is Literal:
        return {"enum": [*parts]}
    if origin in (tuple, frozenset):
        return {"type": "array", "items": _type(parts[0], before.get("items", {}))}
    for name, record in DEFINED.items():
        if record.cls is kind:
            return {"$ref": f"#/$defs/{name}"}
    (record,) = (each for each in INLINE if each.cls is kind)
    return {"type": "object", **_object(record, before)}


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n")
