"""``storlab.api``: what it has, and that nothing else is needed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from storlab import api

EXAMPLES = sorted((Path(__file__).parent.parent / "examples" / "extensions").rglob("*.py"))


def test_its_list_is_what_it_has_in_order() -> None:
    public = {name for name in vars(api) if not name.startswith("_")} - {"annotations"}
    assert set(api.__all__) == public
    constants, classes, functions = (
        [name for name in api.__all__ if kind(name)]
        for kind in (str.isupper, lambda name: name[0].isupper() and not name.isupper(), str.islower)
    )
    assert api.__all__ == [*sorted(constants), *sorted(classes), *sorted(functions)]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.name)
def test_an_extension_needs_nothing_else_of_storlab(file: Path) -> None:
    modules = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    own = [name for name in modules if name and name.startswith("storlab.")]
    assert set(own) <= {"storlab.api", "storlab.conformance"}
