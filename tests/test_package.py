"""The package as a whole: what ``storlab.api`` has, how modules hang together, and one version in all places."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from storlab import api, conformance
from storlab.version import __version__

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples" / "extensions").rglob("*.py"))


def test_its_list_is_what_it_has_in_order_with_every_check_of_conformance() -> None:
    public = {name for name in vars(api) if not name.startswith("_")} - {"annotations", "TYPE_CHECKING"}
    assert set(api.__all__) == public | set(conformance.__all__)
    constants, classes, functions = (
        [name for name in api.__all__ if kind(name)]
        for kind in (str.isupper, lambda name: name[0].isupper() and not name.isupper(), str.islower)
    )
    assert api.__all__ == [*sorted(constants), *sorted(classes), *sorted(functions)]
    written = {name for name, value in vars(conformance).items() if name.startswith("check_") and callable(value)}
    assert set(conformance.__all__) == written
    for name in written:
        assert getattr(api, name) is getattr(conformance, name)
    with pytest.raises(AttributeError, match="has no attribute 'check_everything'"):
        _ = api.check_everything  # type: ignore[attr-defined]


def test_what_loads_an_extension_loads_no_checks_and_the_promise_is_the_version_policys() -> None:
    loads = "import sys, storlab.api; sys.exit('storlab.conformance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], timeout=60).returncode == 0
    policy = (ROOT / "RELEASING.md").read_text("utf-8")
    assert "- the names in `storlab.api` and `storlab.conformance`." in policy
    assert "RELEASING.md" in (api.__doc__ or "")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.name)
def test_an_extension_needs_nothing_else_of_storlab(file: Path) -> None:
    modules = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    own = [name for name in modules if name and name.startswith("storlab.")]
    assert set(own) <= {"storlab.api", "storlab.conformance"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Neither within functions nor for types only: whoever reads one module would have to read all of the circle."""
    graph = grimp.build_graph("storlab", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_the_package_the_agent_and_the_changes_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    agent = tomllib.loads((ROOT / "agent" / "Cargo.toml").read_text())["package"]["version"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert package == agent == newest[1] == __version__
