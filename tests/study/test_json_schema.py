"""The schema that editors check by agrees with what Storlab takes and refuses, and so does docs/reference/study.md."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from tools.stacks_reference import reference as stacks_reference
from tools.study_reference import reference
from tools.study_reference_text import EXAMPLES as SHOWN

from laboratory.studies import parsed
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.json_schema import json_schema
from storlab.study.study import shipped_studies

from . import mistakes
from .mistakes import Mistake, completed

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*.toml"))
SOUND: dict[str, Any] = {
    "title": "x",
    "stack": [{"layer": "directory"}],
    "workload": {"load": {"fio": {"rw": "write"}}},
}


def takes(**changes: Any) -> bool:
    return bool(VALIDATOR.is_valid({**SOUND, **changes}))


def test_the_schema_is_one_in_which_every_key_is_described() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    schema = json_schema()
    for name, definition in [("top", schema), *schema["$defs"].items()]:
        for key, value in definition.get("properties", {}).items():
            known = (
                "$ref" in value
                or {"$ref": "#/$defs/Settle"} in value.get("anyOf", ())
                or name in ("Workload", "Precondition")
                or key == "layer"
            )
            assert known or value.get("description"), f"{name}.{key} has no description"


@pytest.mark.parametrize("file", [*shipped_studies().values(), *EXAMPLES], ids=lambda file: file.name)
def test_studies_that_ship_are_valid(file: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(tomllib.loads(file.read_text()))] == []


def test_a_stack_is_needed_unless_there_are_nodes_that_may_have_one() -> None:
    bare = {key: value for key, value in SOUND.items() if key != "stack"}
    assert not VALIDATOR.is_valid(bare)
    assert VALIDATOR.is_valid({**bare, "nodes": {"n": {"stack": [{"layer": "directory"}]}}})


@pytest.mark.parametrize("layer", layer_types())
def test_a_misspelt_key_of_a_layer_is_marked(layer: str) -> None:
    assert not takes(stack=[{"layer": layer, "a_misspelt_key": 1}])


PARSED = (
    *(*mistakes.KEYS, *mistakes.FACTORS, *mistakes.STACKS, *mistakes.CHAINS),
    *(*mistakes.WORKLOADS, *mistakes.COMMANDS),
)
STRUCTURE = [
    mistake
    for mistake in (*PARSED, *mistakes.GUESTS)
    # A level may be anything: only the place where it is put in says what it should be.
    if not ("factors." in mistake.text and "[stack" not in mistake.text and "factors." in mistake.says)
    and (
        "this key is unknown" in mistake.says or "this key is missing" in mistake.says or "should be a" in mistake.says
    )
]


@pytest.mark.parametrize("mistake", STRUCTURE, ids=lambda mistake: mistake.name)
def test_mistakes_of_structure_are_marked_in_an_editor(mistake: Mistake) -> None:
    assert not VALIDATOR.is_valid(tomllib.loads(mistake.text))


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": {"until": "±5%"}},
        {"repeat": {"until": "max", "min": 1}},
        {"repeat": {"until": 0.05}},
        {"stack": "{fs}"},
        {"stack": {"layer": "directory"}},
        {"stack": [{"layer": "file", "size": "{size}", "overcommit": "{b}"}, "{fs}", {"layer": "loop"}]},
        {"stack": [{"layer": "mount", "options": "noatime,discard"}, {"layer": "mount", "options": ["noatime"]}]},
        {"trial": {"settle": {"sync": "{mode.sync}"}, "timeouts": [{"where": {"jobs": 4}, "timeout": "{t}"}]}},
        {"trial": {"settle": "{settle}", "prepare": [["sync"], "{command}"], "precondition": {"fio": {"rw": "write"}}}},
        {"compare": [{"pairs": [["a", "b"], [1, 2]]}]},
        {"nodes": {"many": {"count": "{n}", "stack": "{fs}"}}},
        {"factors": {"a": [1, 2], "b": {"levels": ["x"]}, "c": {"x": 1, "y": {"layer": "loop"}}}},
        {"workload": {"x": {"on": ["a", "b"], "fio": {"rw": "write", "anything": True, "jobs": {"a": {"bs": 4096}}}}}},
        {"workload": {"x": {"command": {"argv": ["true", "{list}"], "metrics": [{"name": "x", "json": "a"}, "{m}"]}}}},
        {"probes": {"stalls": {"threshold": "{t}"}}},
        {"nodes": {"vm": {"kind": "vm", "stack": "{backing}", "from": "storage", "memory": "{m}", "cpus": 2}}},
        {"nodes": {"vm": {"kind": "vm", "stack": ["{backing}", {"layer": "nvme", "queues": 2}], "qemu_args": ["-s"]}}},
        {"nodes": {"n": {"kind": "{kind}", "memory": "1G"}, "c": {"kind": "netns", "from": "n", "stack": []}}},
        {"nodes": {"n": {"keep": "round", "extra": {"d": {"count": 3, "stack": [{"layer": "directory"}]}}}}},
        {"stack": [{"layer": "directory", "keep": "{keep}", "once": True}]},
        {"workload": {"x": {"on": "vm:share", "shared_files": "same", "fio": {"rw": "write"}}}},
        {"profiles": {"full": {"size": "1G", "jobs": 4}}, "profile": "full"},
    ],
)
def test_what_storlab_takes_is_valid(changes: dict[str, Any]) -> None:
    assert takes(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": {"until": "soon"}}, {"repeat": {"min": 0}}, {"stack": []}, {"stack": "directory"},
        {"workload": {"x": {"fio": {}, "command": {"argv": ["true"]}}}}, {"workload": {"x": {"on": "host"}}},
        {"workload": {"a b": {"fio": {}}}}, {"parameters": {"a.b": 1}}, {"factors": {"a": "4k"}},
        {"probes": {"stall": {}}}, {"nodes": {"vm": {"kind": "qemu"}}},
        {"nodes": {"vm": {"kind": "vm", "stack": []}}}, {"nodes": {"here": {"memory": "1G"}}},
        {"nodes": {"vm": {"kind": "netns", "memory": "1G"}}}, {"nodes": {"vm": {"extra": {"d": {"count": 2}}}}},
        {"nodes": {"vm": {"keep": "ever"}}}, {"stack": [{"layer": "directory", "keep": "day"}]},
        {"workload": {"x": {"shared_files": "mine", "fio": {"rw": "write"}}}}, {"profiles": {"a.b": {}}},
        {"trial": {"precondition": {"on": "host", "fio": {}}}},
    ],
)  # fmt: skip
def test_what_storlab_refuses_is_invalid(changes: dict[str, Any]) -> None:
    assert not takes(**changes)


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "study.md"


def test_the_page_of_all_layers_is_up_to_date() -> None:
    page = PAGE.with_name("stacks.md")
    assert page.read_text() == stacks_reference(), f"write it again: python -m tools.stacks_reference > {page}"


def test_the_page_is_up_to_date_and_describes_keys_of_all_layers_once() -> None:
    update = f"python -m tools.study_reference > {PAGE.relative_to(PAGE.parents[2])}"
    assert PAGE.read_text() == reference(), f"write it again: {update}"
    layers = PAGE.read_text().partition("## Layers")[2]
    assert re.findall(r"^\| `(keep|once|queue)` \|", layers, re.MULTILINE) == ["keep", "once", "queue"]


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_loads_and_is_valid(name: str) -> None:
    text = completed(SHOWN[name])
    assert parsed(text, file=name).cells
    VALIDATOR.validate(tomllib.loads(text))


def test_every_part_has_an_example_that_uses_it_and_every_example_stands_on_the_page() -> None:
    every: dict[str, Mapping[str, type[Any]]] = {
        "kind": node_kinds(),
        "layer": layer_types(),
        "workload": workload_types(),
        "probe": probe_types(),
    }
    for kind, types in every.items():
        for name, cls in types.items():
            if cls.__module__.startswith("storlab."):
                assert name in SHOWN[f"{kind} {name}"]
    shown = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [text.strip() for text in SHOWN.values()] == [text.strip() for text in shown]
