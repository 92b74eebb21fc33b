"""``storlab list``: shipped studies, and what studies are made of; ``storlab schema``: the schema of their files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.cli.options import Json, String, print_json
from storlab.cli.output import show

if TYPE_CHECKING:
    from storlab.study.study import Study


def listing(
    metrics: Annotated[
        String, Option("--metrics", metavar="STUDY", help="List the metrics that a study's trials may have.")
    ] = None,
    json: Json = False,
) -> None:
    """List the shipped studies and what studies are made of."""
    if metrics is not None:
        _list_metrics(metrics, json)
        return
    from storlab.registry import layer_types, probe_types, workload_types
    from storlab.study.study import load_study, shipped_studies

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
        print_json({"studies": described, **kinds})
    else:
        _show(studies, kinds)


def _list_metrics(name: str, json: bool) -> None:
    """A line a metric. A word in braces is the name of a disk, a guest and the like, known once a trial has run."""
    from storlab.run.planning.metrics import metrics_of_study
    from storlab.study.study import find_study, load_study

    declared = metrics_of_study(load_study(find_study(name)))
    rows = [(s.name, s.unit, s.better, source) for source, specs in declared.items() for s in specs.numbers()]
    heading = ("metric", "unit", "better", "source")
    if json:
        print_json([dict(zip(heading, row, strict=True)) for row in rows])
    elif sys.stdout.isatty():
        from rich.table import Table

        from storlab.cli.console import Console

        table = Table(*heading, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            show("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _show(studies: dict[str, Study], kinds: dict[str, dict[str, str]]) -> None:
    from rich.table import Table

    from storlab.cli.console import Console

    console = Console()
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
    guests = any(group.memory_needed() for cell in study.cells for group in cell.nodes.values())
    here = (unit for cell in study.cells for unit in cell.units if cell.is_here(unit.on))
    root = any(layer.needs().root for unit in here for layer in unit.layers)
    return [need for need, wanted in (("root", root), ("virtual machines", guests)) if wanted]


def _purpose(cls: type) -> str:
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())


def schema() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check studies by it: `storlab schema > study.schema.json`, and a first line
    `#:schema study.schema.json` in the study.
    """
    from storlab.study.json_schema import json_schema

    print_json(json_schema())
