"""The published JSON Schemas, made from the records by which documents are read and written.

`python -m published_schemas` writes the files. The descriptions of keys, and keys that no record has, stay as
they are in a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gputui.allocating import settings  # noqa: F401 - its errors
from gputui.checking import render
from gputui.cli import (
    claims,
    config,
    dispatch,  # noqa: F401 - its errors
    docs,
    doctor,
    jobs_text,
    launches,
    ls_ray,
    ls_slurm,
    people,
    queue,
    topo,
    usage,
)
from gputui.cli.mcp import limits  # noqa: F401 - its errors
from gputui.inventory import document, typed_json
from gputui.inventory.errors import GputuiError
from gputui.inventory.typed_json import Record
from gputui.jobs import after  # noqa: F401 - its errors
from gputui.jobs.experiments import record as experiments
from gputui.launching import confine  # noqa: F401 - its errors
from gputui.launching.exports import json_document
from gputui.planning import document as plans

FOLDER = Path(document.__file__).parent
DOCUMENTS: dict[str, tuple[Record[Any], tuple[str, ...]]] = {
    "ls": (document.BOX, ("ls --json", "record -")),
    "topo": (topo.TOPO, ("topo --json",)),
    "people": (people.PEOPLE, ("people --json",)),
    "usage": (usage.USAGE, ("usage --json",)),
    "pick": (document.PICK, ("pick --json", "pick --format json")),
    "plan": (plans.PLAN, ("plan --json",)),
    "launch": (
        json_document.LAUNCH,
        ("run --dry-run --json", "plan --use STRATEGY --json", "export --json", "export --as json"),
    ),
    "dry-run": (json_document.DRY_RUN, ("compare --dry-run --json", "each --dry-run --json")),
    "job": (
        jobs_text.JOB,
        (
            *("run --detach --json", "compare --detach --json", "each --detach --json"),
            *("jobs show --json", "jobs wait --json", "jobs rerun --json"),
        ),
    ),
    "jobs": (jobs_text.JOBS, ("jobs --json", "jobs stop --json", "jobs forget --json")),
    "log": (jobs_text.LOG, ("jobs log --json",)),
    "call": (jobs_text.CALL, ("jobs show --command --json",)),
    "check": (render.CHECK, ("check --json",)),
    "comparison": (experiments.DOCUMENTS["comparison"], ("compare --json", "compare --show ID --json")),
    "comparisons": (experiments.LISTS["comparison"], ("compare --list --json",)),
    "sweep": (experiments.DOCUMENTS["sweep"], ("each --json", "each --show ID --json")),
    "sweeps": (experiments.LISTS["sweep"], ("each --list --json",)),
    "claims": (claims.CLAIMS, ("claims --json",)),
    "queue": (queue.QUEUE, ("queue --json",)),
    "launches": (launches.LAUNCHES, ("launches --json",)),
    "doctor": (doctor.DOCTOR, ("doctor --json",)),
    "config": (config.CONFIG, ("config --json",)),
    "pages": (docs.PAGES, ("docs --json",)),
    "page": (docs.PAGE, ("docs PAGE --json",)),
    "error": (document.ERROR, ()),
}
"""By the name of a schema: what it describes, and the calls that print it ("error": any that fails). That of
several boxes, boxes.schema.json, is written by hand but for what Slurm says."""
SCHEMAS = (*DOCUMENTS, "boxes")
_DEFINED = {
    "device": document.DEVICE,
    "claim": document.CLAIM,
    "process": document.PROCESS,
    "waiter": document.WAITER,
    "topology": document.TOPOLOGY,
    "telemetry": document.TELEMETRY,
}
"""What the schema of a box has by name: that of several boxes refers to it."""
_OF_A_BOX = {each.cls: each for each in vars(document).values() if type(each) is Record}
_NULL_ELSEWHERE = ("vendor",)
"""Keys that are never null where gputui has read the device, and always null where Slurm reports it."""
_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    typed_json.Moment: {"type": "string", "format": "date-time"},
    typed_json.Celsius: {"type": "integer", "minimum": -273},
    typed_json.Positive: {"type": "integer", "minimum": 1},
    typed_json.Signed: {"type": "integer"},
    typed_json.Figure: {"type": "number"},
    typed_json.SCHEMA_KEY: {"const": typed_json.SCHEMA},
}


def file_of(name: str) -> Path:
    """The file of a schema."""
    return FOLDER / f"{name}.schema.json"


def published(name: str) -> dict[str, Any]:
    """A schema from its file; the beginning of one where there is none."""
    if file_of(name).exists():
        found: dict[str, Any] = json.loads(file_of(name).read_text())
        return found
    calls = " and ".join(f"gputui {call}" for call in DOCUMENTS[name][1])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{calls or 'a call with --json that fails'}, schema 1",
        "description": "What is unknown is null. Keys may be added within schema 1.",
        "type": "object",
    }


def errors() -> list[type[GputuiError]]:
    """Every class of errors."""
    found: list[type[GputuiError]] = [GputuiError]
    for each in found:
        found += each.__subclasses__()
    return found


def made(name: str) -> dict[str, Any]:
    """A schema, made from the records."""
    schema = published(name)
    if name == "boxes":
        defined = {"node": ls_slurm.NODE, "slurm": ls_slurm.CLUSTER}
        described = {key: _object(each, schema["$defs"][key], {}) for key, each in defined.items()}
        return {**schema, "$defs": {**schema["$defs"], **described}}
    record = DOCUMENTS[name][0]
    if name == "error":
        schema = _object(record, schema, {})
        code = schema["properties"]["error"]["properties"]["code"]
        code["enum"] = sorted({each.code for each in errors()})
        return schema
    if name != "ls":
        return _object(record, schema, {})
    schema["properties"]["ray"] = _object(ls_ray.RAY, schema["properties"]["ray"], {})
    names = {id(record): name for name, record in _DEFINED.items()}
    described = {name: _object(record, schema["$defs"][name], names) for name, record in _DEFINED.items()}
    return {**_object(record, schema, names), "$defs": {**schema["$defs"], **described}}


def _object(record: Record[Any], before: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    properties, needed = dict(before.get("properties", {})), set(before.get("required", ()))
    for name, key, _, must in record.rows:
        kind = record.kind(name, key)
        kind = kind | None if names and key in _NULL_ELSEWHERE else kind
        properties[key] = _type(kind, properties.get(key, {}), names)
        needed |= {key} if must else set()
    required = [key for key in properties if key in needed]
    return {**before, **({"required": required} if required else {}), "properties": properties}


def _type(kind: Any, before: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    """The schema of a type, with the descriptions of the earlier schema."""
    parts = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        (inner,) = [part for part in parts if part is not NoneType]
        return _or_null(inner, before, names)
    if get_origin(kind) is Annotated and kind not in _PLAIN and not isinstance(parts[1], Record):
        return _type(parts[0], before, names)
    found = _definite(kind, before, names)
    return {**found, **({"description": before["description"]} if "description" in before else {})}


def _or_null(kind: Any, before: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    inside = next((each for each in before.get("anyOf", ()) if each != {"type": "null"}), before)
    found = _type(kind, inside, names)
    if "enum" in found:
        return {**found, "enum": [*found["enum"], None]}
    if found.get("type") in ("object", "array") or "$ref" in found:
        outside = {
            key: value for key, value in before.items() if key == "description" and inside is not before
        }
        return {"anyOf": [found, {"type": "null"}], **outside}
    return {**found, "type": [found["type"], "null"]} if "type" in found else found


def _definite(kind: Any, before: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    parts, origin = get_args(kind), get_origin(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in (object, Any):
        return before
    if origin is Literal:
        return {"enum": [*parts]}
    if origin is Annotated:
        # A record, or a list of its values.
        if get_origin(parts[0]) is not tuple:
            return _record(parts[1], before, names)
        return {"type": "array", "items": _record(parts[1], before.get("items", {}), names)}
    if origin in (tuple, frozenset):
        if origin is frozenset or ... in parts:
            return {"type": "array", "items": _type(parts[0], before.get("items", {}), names)}
        pair = [_type(part, {}, names) for part in parts]
        return {"type": "array", "prefixItems": pair, "minItems": len(pair), "maxItems": len(pair)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(parts[1], {}, names)}
    record = _OF_A_BOX.get(kind) or typed_json.form_of(kind).read.__self__  # type: ignore[attr-defined]
    return _record(record, before, names)


def _record(record: Record[Any], before: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    if id(record) in names:
        return {"$ref": f"#/$defs/{names[id(record)]}"}
    return {"type": "object", **_object(record, before, names)}


def table() -> str:
    """The table of docs/json.md: every document with its calls."""
    rows = ["| calls | schema |", "|---|---|"]
    for name, (_, calls) in DOCUMENTS.items():
        told = ", ".join(f"`{call}`" for call in calls) or "any of these that fails"
        link = f"[{name}.schema.json](../app/gputui/inventory/{name}.schema.json)"
        rows.append(f"| {told} | {link} |")
    return "\n".join(rows)


def key_table(name: str) -> str:
    """The table of docs/json.md with every key of a document."""
    rows = [f"### {name}", "", "| key | value | meaning |", "|---|---|---|"]
    for path, found in keys(published(name)):
        rows.append(f"| `{path}` | {_value(found)} | {found.get('description', '')} |")
    return "\n".join(rows) + "\n"


def keys(
    schema: dict[str, Any], path: str = "", root: dict[str, Any] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The path and the schema of every key, but that of the version. References are to the root."""
    for key, found in schema.get("properties", {}).items():
        inner, inside, whole = f"{path}{key}", found, root or schema
        if inner == "schema":
            continue
        yield inner, found
        while True:
            if "anyOf" in inside:
                inside = next(each for each in inside["anyOf"] if each != {"type": "null"})
            elif "items" in inside:
                inner, inside = f"{inner}[]", inside["items"]
            elif "$ref" in inside:
                file, _, place = inside["$ref"].partition("#/")
                inside = whole = published(file.removesuffix(".schema.json")) if file else whole
                for step in place.split("/"):
                    inside = inside[step]
            else:
                break
        yield from keys(inside, f"{inner}.", whole)


def _value(schema: dict[str, Any]) -> str:
    """The type of a key in a few words."""
    if "anyOf" in schema:
        return " or ".join(map(_value, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join("null" if each is None else f"`{each}`" for each in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds == ["array"] and "items" in schema:
        return f"list of {_value(schema['items'])}"
    time = schema.get("format") == "date-time"
    return " or ".join("time" if time and each == "string" else _WORDS.get(each, each) for each in kinds)


_WORDS = {"string": "text", "boolean": "true or false", "array": "list"}
_ELSEWHERE = ("ls", "job", "dry-run", "comparisons", "sweep", "sweeps")
"""The documents whose keys docs/json.md leaves out: docs/command-line.md has those of `ls`, and the others
consist of documents that it has."""
PAGE = Path(__file__).parents[1] / "docs" / "json.md"


def page() -> str:
    """docs/json.md with its tables made anew."""
    told = PAGE.read_text()
    told = re.sub(r"\| calls \| schema \|\n(\|[^\n]*\n)+", lambda _: table() + "\n", told)
    written = told[: told.index(_KEYS)] + _KEYS
    return written + "\n".join(map(key_table, (each for each in DOCUMENTS if each not in _ELSEWHERE)))


_KEYS = """## Keys

A `job` is an entry of `jobs`, each launch of `dry-run` is a `launch` with a `label`, and a `sweep` is a
`comparison` whose variants are called `tasks`. [The command line](command-line.md#json) explains the keys of
`ls`.

"""


def closed(schema: Any) -> Any:
    """The schema, changed to reject every key that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **found} if schema.get("type") == "object" else found


if __name__ == "__main__":
    for each in SCHEMAS:
        file_of(each).write_text(json.dumps(made(each), indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page())
