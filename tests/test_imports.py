"""How modules hang together, beyond the layers that import-linter keeps apart (``pyproject.toml``)."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Neither within functions nor for types only: whoever reads one module would have to read all of the circle."""
    graph = grimp.build_graph("storlab", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
