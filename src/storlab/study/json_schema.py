"""The JSON Schema of study files, for editors: composed of the models of the study, layers, workloads and probes.

Any value may also be a ``"{factor}"``, so every scalar allows such a string beside its own type.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from storlab.layers.registry import layer_types
from storlab.probes.registry import probe_types
from storlab.study.schema import StudyFile, Trial
from storlab.workloads.registry import workload_types

_WORD = {"type": "string", "pattern": r"\{[A-Za-z_][\w.-]*\}"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as plain data."""
    schema = StudyFile.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    layers = [_add(definitions, cls, required=("layer",)) for cls in layer_types().values()]
    definitions["Layer"] = {"anyOf": [*layers, _WORD]}
    definitions["Stack"] = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Layer"}}, _WORD]}
    definitions["Factor"] = {
        "anyOf": [
            {"type": "array"},
            {"type": "object", "properties": {"levels": {"type": "array"}}},
        ],
        "description": "levels = [...], or a name for each level: a value, a layer, or a whole stack.",
    }
    kinds = {kind: _add(definitions, cls) for kind, cls in workload_types().items()}
    definitions["Workload"] = {
        "type": "object",
        "properties": {**kinds, "on": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
        "additionalProperties": False,
    }
    properties = schema["properties"]
    properties["stack"] = {"$ref": "#/$defs/Stack", "description": properties["stack"]["description"]}
    properties["factors"]["additionalProperties"] = {"$ref": "#/$defs/Factor"}
    properties["workload"]["additionalProperties"] = {"$ref": "#/$defs/Workload"}
    probes = {kind: _add(definitions, cls) for kind, cls in probe_types().items()}
    properties["probes"] = {"type": "object", "properties": probes, "additionalProperties": False}
    properties["trial"] = _add(definitions, Trial)
    definitions["Trial"]["properties"]["precondition"] = {"$ref": "#/$defs/Workload"}
    definitions["NodeGroup"]["properties"]["stack"] = {"$ref": "#/$defs/Stack"}
    return {"$schema": _DIALECT, "title": "Storlab study", **_without_title(schema)}


def _add(definitions: dict[str, Any], cls: type[BaseModel], required: tuple[str, ...] = ()) -> dict[str, str]:
    """Put a model's schema among the definitions; gives the reference to it."""
    schema = cls.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions |= {name: _open(definition) for name, definition in schema.pop("$defs", {}).items()}
    if required:
        schema["required"] = sorted({*schema.get("required", ()), *required})
    definitions[cls.__name__] = _open(schema)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """Let every property also be a ``{word}``."""
    for name, value in schema.get("properties", {}).items():
        if name != "layer" and "$ref" not in value:
            kept = {key: value.pop(key) for key in ("title", "description", "default") if key in value}
            schema["properties"][name] = {**kept, "anyOf": [value, _WORD]}
    return schema


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
