"""The JSON Schema of study files, for editors: composed of the models of the study, layers, workloads and probes.

Where factors can be put in, any value may also be a ``"{factor}"``, so every key allows such a string beside its own
type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from storlab.nodes.shaping.keys import Network
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.schema import NAME, WORD, PowerCuts, StudyFile, Trial, group_model
from storlab.workloads.base import Workload
from storlab.workloads.limits import Limits

Schema = dict[str, Any]

_WORD = {"type": "string", "pattern": r"\{[A-Za-z_][A-Za-z0-9_.-]*\}"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ONE_TEXT = {("MountLayer", "options")}
"""Lists of words that may be written as one text with commas."""


def json_schema() -> Schema:
    schema = StudyFile.model_json_schema(by_alias=True)
    definitions: Schema = schema.setdefault("$defs", {})
    properties = schema["properties"]

    layers = [_add(definitions, cls, required=("layer",)) for cls in layer_types().values()]
    definitions["Layer"] = {"anyOf": [*layers, _WORD]}
    stack = {"type": "array", "items": _ref("Layer"), "minItems": 1}
    definitions["Stack"] = {"anyOf": [stack, _ref("Layer")]}
    properties["stack"] = {**_ref("Stack"), "description": properties["stack"]["description"]}

    definitions["Factor"] = {
        "anyOf": [{"type": "array", "minItems": 1}, {"type": "object", "minProperties": 1}],
        "description": "levels = [...], or a name for each level: a value, a layer, or a whole stack.",
    }
    properties["factors"] |= {"additionalProperties": _ref("Factor"), **_names(WORD.pattern)}
    several = properties["slo"]
    properties["slo"] = {"anyOf": [several, _ref("Objective")], "description": several.pop("description")}
    properties["parameters"] |= _names(WORD.pattern)

    kinds = {kind: _add(definitions, cls) for kind, cls in workload_types().items()}
    nodes = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
    files = {"anyOf": [{"enum": ["own", "same"]}, _WORD]}
    own = {"on": nodes, "shared_files": files, "limits": {"anyOf": [_add(definitions, Limits), _WORD]}}
    definitions["Workload"] = {**_one_of(kinds), "properties": {**kinds, **own}}
    definitions["Precondition"] = _one_of(kinds)
    able = [kind for kind, cls in workload_types().items() if cls.verifies is not Workload.verifies]
    properties["workload"] |= {"additionalProperties": _ref("Workload"), **_names(NAME.pattern)}

    probes = {kind: _add(definitions, cls) for kind, cls in probe_types().items()}
    properties["probes"] |= {"properties": probes, "additionalProperties": False}

    properties["network"] = {**_add(definitions, Network), "description": properties["network"]["description"]}
    properties["trial"] = _add(definitions, Trial)
    definitions["Trial"]["properties"]["precondition"] |= {"anyOf": [_ref("Precondition"), _WORD]}
    checks = [{"enum": able}, _one_of({kind: kinds[kind] for kind in able})]
    definitions["Trial"]["properties"]["verify"]["anyOf"] += checks
    properties["crash"] = {**_add(definitions, PowerCuts), "description": properties["crash"]["description"]}
    definitions["PowerCuts"]["properties"]["load"] |= {"anyOf": [_ref("Precondition"), _WORD]}
    properties["nodes"] |= {"additionalProperties": _groups(definitions), **_names(NAME.pattern)}
    properties["profiles"] |= _names(WORD.pattern)
    needs_one = {"anyOf": [{"required": ["stack"]}, {"required": ["nodes"]}]}  # nodes may have stacks of their own
    whole = {"title": "Storlab study", "required": ["title", "workload"], **needs_one}
    return {"$schema": _DIALECT, **schema, **whole}


def _groups(definitions: Schema) -> Schema:
    """A group of nodes: of each kind with its own keys, and ``local`` where it does not say which."""
    groups = []
    for kind in node_kinds():
        model = group_model(kind)
        groups.append(_add(definitions, model, required=() if kind == "local" else ("kind",)))
        group = definitions[model.__name__]
        group["properties"]["stack"] |= {"anyOf": [_ref("Stack"), {"type": "array", "maxItems": 0}]}
        # What another group serves may be all of it.
        group["anyOf"] = [{"required": ["from"]}, {"properties": {"stack": {"minItems": 1}}}]
    definitions["Extra"]["properties"]["stack"] |= _ref("Stack")
    definitions["Extra"]["required"] = ["stack"]
    return {"anyOf": groups}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _names(pattern: str) -> Schema:
    return {"propertyNames": {"pattern": f"^{pattern}$"}}


def _one_of(kinds: dict[str, dict[str, str]]) -> Schema:
    one = [{"required": [kind]} for kind in kinds]
    return {"type": "object", "properties": kinds, "additionalProperties": False, "oneOf": one}


def _add(definitions: Schema, cls: type[BaseModel], required: Iterable[str] = ()) -> dict[str, str]:
    """Put a model's schema among the definitions; gives the reference to it."""
    schema = cls.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    inner = schema.pop("$defs", {})
    definitions |= {name: _open(name, definition) for name, definition in inner.items()}
    schema["required"] = sorted({*schema.get("required", ()), *required})
    definitions[cls.__name__] = _open(cls.__name__, schema)
    return _ref(cls.__name__)


def _open(model: str, schema: Schema) -> Schema:
    """Let every property also be a ``{word}``."""
    for name, value in schema.get("properties", {}).items():
        if name == "layer":
            continue
        kept = {key: value.pop(key) for key in ("title", "description", "default", "examples") if key in value}
        text = [{"type": "string"}] if (model, name) in _ONE_TEXT else []
        schema["properties"][name] = {**kept, "anyOf": [_open_items(value), *text, _WORD]}
    return schema


def _open_items(schema: Schema) -> Schema:
    """Lists, to which a word may also add elements."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_open_items(each) for each in schema["anyOf"]]}
    if schema.get("type") == "array" and "items" in schema:
        return {**schema, "items": {"anyOf": [_open_items(schema["items"]), _WORD]}}
    return schema
