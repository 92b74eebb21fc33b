"""docs/reference/study.md is what the schema says now, and all of its examples load."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from tools.study_reference import reference
from tools.study_reference_text import EXAMPLES

from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.json_schema import json_schema
from storlab.study.study import parse_study

from .mistakes import completed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "study.md"


def test_the_page_is_up_to_date() -> None:
    update = f"python -m tools.study_reference > {PAGE.relative_to(PAGE.parents[2])}"
    assert PAGE.read_text() == reference(), f"write it again: {update}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_loads_and_is_valid(name: str) -> None:
    text = completed(EXAMPLES[name])

    def read(path: str) -> str:
        raise ValueError(f"{path}: no example names a file")

    assert parse_study(text.encode(), name, read).cells
    jsonschema.Draft202012Validator(json_schema()).validate(tomllib.loads(text))


def test_every_part_has_an_example_that_uses_it() -> None:
    every: dict[str, Mapping[str, type[Any]]] = {
        "kind": node_kinds(),
        "layer": layer_types(),
        "workload": workload_types(),
        "probe": probe_types(),
    }
    for kind, types in every.items():
        for name, cls in types.items():
            if cls.__module__.startswith("storlab."):
                assert name in EXAMPLES[f"{kind} {name}"]


def test_every_example_stands_on_the_page() -> None:
    shown = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [text.strip() for text in EXAMPLES.values()] == [text.strip() for text in shown]


def test_keys_of_all_layers_are_described_once() -> None:
    assert re.findall(r"^\| `(keep|once)` \|", PAGE.read_text().partition("## Layers")[2], re.MULTILINE) == [
        "keep",
        "once",
    ]
