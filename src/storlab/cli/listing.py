"""``storlab list``."""

from __future__ import annotations

import json as json_module

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from storlab.layers.registry import layer_types
from storlab.layers.stack import stack_needs
from storlab.probes.registry import probe_types
from storlab.study.study import Study, load_study, shipped_studies
from storlab.workloads.registry import workload_types


def listing(json: bool) -> None:
    """Print the shipped studies, and the kinds of layer, workload and probe."""
    studies = {name: load_study(path) for name, path in shipped_studies().items()}
    kinds = {
        "layers": {name: _purpose(cls) for name, cls in layer_types().items()},
        "workloads": {name: _purpose(cls) for name, cls in workload_types().items()},
        "probes": {name: _purpose(cls) for name, cls in probe_types().items()},
    }
    if json:
        described = {
            name: {"title": s.model.title, "cells": len(s.cells), "needs": _needs(s), "file": s.file}
            for name, s in studies.items()
        }
        print(json_module.dumps({"studies": described, **kinds}, indent=2))
        return
    console = Console(highlight=False)
    table = Table(title="Studies", title_justify="left", box=None, pad_edge=False, title_style="bold")
    table.add_column("study", style="cyan", no_wrap=True)
    table.add_column("cells", justify="right")
    table.add_column("needs")
    table.add_column("what it compares")
    for name, study in studies.items():
        table.add_row(name, str(len(study.cells)), ", ".join(_needs(study)), study.model.title)
    console.print(table)
    for name, entries in kinds.items():
        title = f"\n{name.capitalize()}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
        table.add_column("", style="cyan", no_wrap=True)
        table.add_column("")
        table.show_header = False
        for kind, purpose in entries.items():
            table.add_row(kind, purpose)
        console.print(table)


def _needs(study: Study) -> list[str]:
    """What not every machine offers, as far as that shows without a look at this one."""
    guests = any(group.kind != "local" for cell in study.cells for group in cell.nodes.values())
    here = [layers for cell in study.cells for name, layers in cell.stacks.items() if cell.nodes[name].kind == "local"]
    root = any(stack_needs(layers).root for layers in here)
    return [need for need, wanted in (("root", root), ("virtual machines", guests)) if wanted]


def _purpose(cls: type[BaseModel]) -> str:
    """The first paragraph of its docstring."""
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
