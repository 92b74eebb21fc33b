"""The page ``docs/reference/study.md``, written from the schema by ``python -m tools.study_reference``.

Every key with its type, default and description, and an example of each layer, workload and probe.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from storlab.base.units import shown, size_text
from storlab.layers.attach.attachment import AttachmentLayer
from storlab.layers.base import Crossing, Layer
from storlab.layers.block.drivers import Zones
from storlab.layers.block.lvm_parts import Cache, Snapshots, Thin, Vdo
from storlab.layers.block.queue_keys import Queue
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.data_set import DataSet
from storlab.layers.fs.image_base import BASE_HELP, Base
from storlab.layers.net.initiator import InitiatorLayer
from storlab.layers.server.base import ServerLayer
from storlab.layers.zfs.module import PropertiesLayer
from storlab.nodes.kind import NodeKind
from storlab.nodes.settings import SETTABLE
from storlab.nodes.shaping.keys import Network, Tcp
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.questions import Claim, Compare, Objective
from storlab.study.schema import (
    Extra,
    NodeGroup,
    PowerCuts,
    Repeat,
    Settle,
    StudyFile,
    TimeoutRule,
    Trial,
    group_model,
)
from storlab.workloads.bonnie import Files
from storlab.workloads.command import Expectation, MetricRule
from storlab.workloads.files.options import Choice, Directories, FileSizes
from storlab.workloads.limits import IoMax, Limits
from storlab.workloads.posix.workload import Pjdfstest
from tools.study_reference_text import AFTER_EACH, BEFORE_EACH, END, EXAMPLES, START

_COMMON = ("keep", "once", "queue")
"""Keys of every layer, which are described once."""
_SHARED: dict[type[Any], str] = {
    AttachmentLayer: "disks of virtual machines",
    InitiatorLayer: "disks over a network",
    ServerLayer: "servers",
    DatabaseLayer: "databases",
    PropertiesLayer: "datasets and volumes",
}
"""Layers of one kind, whose common keys stand in one table."""
_LARGE = 1024  # bytes: a sector is called 512
_BY_EXAMPLE = {"4k": "size", "60s": "duration", "5%": "share", "100Mbit": "bandwidth"}
_INNER: dict[str, dict[str, type[BaseModel]]] = {
    "bonnie": {"`files`, where it is a table": Files},
    "command": {"each of its `metrics`": MetricRule, "`expect`": Expectation},
    "files": {
        "`directories`": Directories,
        "`size`, where it is a table": FileSizes,
        "each of the `choices` of `size`": Choice,
    },
    "lvm": {"`thin`": Thin, "`vdo`": Vdo, "`cache`": Cache, "`snapshots`": Snapshots},
    "null-blk": {"`zones`, also of `scsi-debug`": Zones},
    "posix": {"`pjdfstest`": Pjdfstest},
}
"""Tables within the tables of layers and workloads."""

_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "table",
    "null": "",
}


def reference() -> str:
    """The whole page."""
    return "\n".join([*_parts()]).rstrip() + "\n"


def _parts() -> Iterator[str]:
    yield START
    for title, model, key in (
        ("The study", StudyFile, "study"),
        ("`repeat`", Repeat, "repeat"),
        ("`compare`", Compare, "compare"),
        ("`claim`", Claim, "claim"),
        ("`slo`", Objective, "slo"),
        ("`nodes`", NodeGroup, "nodes"),
        ("`nodes.NAME.extra`", Extra, "extra"),
        ("`nodes.NAME.tcp`", Tcp, "tcp"),
        ("`network`", Network, "network"),
        ("`trial`", Trial, "trial"),
        ("`trial.settle`", Settle, "settle"),
        ("`trial.timeouts`", TimeoutRule, "timeouts"),
        ("`crash`", PowerCuts, "crash"),
    ):
        yield from _section(title, model, key)
        if key == "tcp":
            yield from _settings()
    for heading, types, name in (
        ("Kinds of nodes", node_kinds(), "kind"),
        ("Layers", layer_types(), "layer"),
        ("Workloads", workload_types(), "workload"),
        ("Probes", probe_types(), "probe"),
    ):
        yield f"## {heading}\n"
        yield BEFORE_EACH[heading]
        if heading == "Layers":
            yield from table(Layer)
        for kind, cls in _own(types).items():
            yield f"### {name} {kind}\n"
            yield f"{purpose(cls)}{_types_of(cls)}\n"
            yield from table(cls)
            if shared := [f"[{_SHARED[base]}](#{_anchor(base)})" for base in _shared_bases(cls)]:
                yield f"Keys of {' and of '.join(shared)} as well.\n"
            yield from _example(f"{name} {kind}")
            for keys, inner in _INNER.get(kind, {}).items():
                yield f"Keys of {keys}:\n"
                yield from table(inner)
        if heading == "Layers":
            for base, of in _SHARED.items():
                yield f"### Keys of {of}\n"
                yield from table(base)
            yield "### Queue\n"
            yield f"{purpose(Queue)}\n"
            yield from table(Queue)
            yield from _example("queue")
            yield "### Base images\n"
            yield f"{BASE_HELP}\n"
            yield from table(Base)
            yield from _example("base image")
            yield "### Data sets\n"
            yield f"{purpose(DataSet)}\n"
            yield from table(DataSet)
        if heading == "Workloads":
            yield "### Limits\n"
            yield f"{purpose(Limits)}\n"
            yield from table(Limits)
            yield "Keys of `io_max`:\n"
            yield from table(IoMax)
            yield from _example("limits")
            yield AFTER_EACH["limits"]
    yield END


def _own(types: Mapping[str, type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Without those that other packages add on this machine."""
    return {kind: cls for kind, cls in types.items() if cls.__module__.startswith("storlab.")}


def _section(title: str, model: type[BaseModel], key: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{purpose(model)}\n"
    yield from table(model)
    yield from _example(key)
    if key in AFTER_EACH:
        yield AFTER_EACH[key]
    yield from _example(f"{key} more")


def _settings() -> Iterator[str]:
    yield "## `nodes.NAME.settings`\n"
    yield "Settings of the kernel of each of these nodes, while a trial runs; by default as they are.\n"
    rows = ["| key | value | file |", "| --- | --- | --- |"]
    for name, (path, allowed) in SETTABLE.items():
        match allowed:
            case range():
                values = f"{allowed[0]} to {allowed[-1]}"
            case str():
                values = allowed
            case _:
                values = ", ".join(f"`{each}`" for each in allowed)
        rows.append(f"| `{name}` | {values} | `{path}` |")
    yield "\n".join([*rows, ""])
    yield from _example("settings")
    yield AFTER_EACH["settings"]


def _example(name: str) -> Iterator[str]:
    if name in EXAMPLES:
        yield f"```toml\n{EXAMPLES[name].strip()}\n```\n"


def purpose(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")


def _types_of(cls: type[BaseModel]) -> str:
    if not issubclass(cls, Layer):
        return ""
    *others, last = ["nothing" if taken is None else _a(taken.kind) for taken in cls.takes]
    takes = f"{', '.join(others)} or {last}" if others else last
    crosses = f" Crosses by the {cls.transport}." if issubclass(cls, Crossing) else ""
    return f" Takes {takes}, gives {_a(cls.gives.kind)}.{crosses}"


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def table(model: type[BaseModel], *, own: bool = False) -> Iterator[str]:
    """Its keys, with types, defaults and meaning. ``own``: without those that it inherits."""
    if model is NodeGroup:
        model = group_model("local")  # which adds no keys to those of every group
    properties = model.model_json_schema(by_alias=True).get("properties", {})
    definitions = model.model_json_schema(by_alias=True).get("$defs", {})
    rows = []
    for name in _keys(model):
        if own and name not in model.__annotations__:
            continue
        info = model.model_fields[name]
        key = info.alias or name
        kind = "list of layers" if key == "stack" else _type(properties[key], definitions)
        if key == "kind" and issubclass(model, NodeGroup):
            kind = ", ".join(f"[`{kind}`](#kind-{kind})" for kind in _own(node_kinds()))
        about = info.description or ""
        if about.startswith(BASE_HELP):
            kind, about = "[base image](#base-images)", f"What it starts from.{about.removeprefix(BASE_HELP)}"
        if info.annotation == DataSet | None:
            kind = "[data set](#data-sets)"
        default = "required" if info.is_required() else _default(info.get_default(call_default_factory=True), kind)
        rows.append(f"| `{key}` | {kind} | {default} | {_cell(about)} |")
    if rows:
        yield "\n".join(["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _keys(model: type[BaseModel]) -> list[str]:
    """A model's own keys, then those that it has in common with others; what all of them have is described once."""
    if model is Layer:
        return [*_COMMON]
    own = [name for name in model.model_fields if name in model.__annotations__]
    inherited = [name for name in model.model_fields if name not in own]
    left_out = {"kind"} if _is_kind(model) else set()
    if issubclass(model, Layer):
        left_out = {"layer", *_COMMON, *(name for base in _shared_bases(model) for name in _keys_at(base, model))}
    return [name for name in (*own, *inherited) if name not in left_out]


def _shared_bases(model: type[BaseModel]) -> list[type[Any]]:
    """Those whose table has keys of this layer, the most special first."""
    bases = sorted((base for base in _SHARED if issubclass(model, base)), key=lambda base: -len(base.__mro__))
    return [base for base in bases if base is not model and _keys_at(base, model)]


def _keys_at(base: type[Any], model: type[BaseModel]) -> list[str]:
    """The keys that a layer has as this base declares them, and nothing in between."""
    declaring = {name: cls for cls in reversed(model.__mro__) for name in inspect.get_annotations(cls)}
    return [name for name in base.__annotations__ if name in model.model_fields and declaring[name] is base]


def _anchor(base: type[Any]) -> str:
    return f"keys-of-{_SHARED[base].replace(' ', '-')}"


def _is_kind(model: type[BaseModel]) -> bool:
    return issubclass(model, NodeKind) and not issubclass(model, NodeGroup)


def _default(value: Any, kind: str) -> str:
    if kind.startswith("size") and isinstance(value, int):
        return f"`{shown(size_text(value))}`" if value >= _LARGE else f"`{value}`"
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel) or (isinstance(value, tuple) and value and isinstance(value[0], BaseModel)):
        return "its keys' defaults"
    return _cell(f"`{value:g}`" if isinstance(value, float) else f"`{shown(value)}`")


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words."""
    for example in schema.get("examples", ()):
        if example in _BY_EXAMPLE:
            return _BY_EXAMPLE[example]
    if "$ref" in schema:
        return "table" if "properties" in definitions.get(schema["$ref"].rpartition("/")[2], {}) else "text"
    if alternatives := schema.get("anyOf", schema.get("oneOf")):
        kinds = (_type(each, definitions) for each in alternatives)
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{shown(word)}`" for word in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_plural(_type(schema.get('items', {}), definitions))}"
    kind = schema.get("type", "")
    if schema.get("format") == "date":
        return "date"
    if isinstance(kind, str):
        return _TYPES.get(kind, "")
    return "name of a level" if "boolean" in kind else " or ".join(_TYPES[each] for each in kind)


def _plural(kind: str) -> str:
    if kind.startswith("list"):
        return f"lists{kind.removeprefix('list')}"
    return {"": "values", "text": "texts", "table": "tables", "name of a level": "names of levels"}.get(kind, kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(reference())
