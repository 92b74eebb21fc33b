"""What there is: ``storlab list`` (studies and their parts), ``schema`` (of study files), ``doctor`` (this machine)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.cli.options import Json, String, print_json
from storlab.cli.output import show

if TYPE_CHECKING:
    from storlab.doctor.machine import Check
    from storlab.report.document import Document, Tone
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
        from storlab.cli.console import show_document

        show_document(_document(studies, kinds))


def _list_metrics(name: str, json: bool) -> None:
    """A line a metric. A word in braces is the name of a disk, a guest and the like, known once a trial has run."""
    from storlab.run.planning.metrics import metrics_of_study
    from storlab.study.study import find_study, load_study

    declared = metrics_of_study(load_study(find_study(name)))
    rows = [(s.name, s.unit, s.better, source) for source, specs in declared.items() for s in specs.numbers()]
    heading = ("metric", "unit", "better", "source")
    if json:
        print_json([dict(zip(heading, row, strict=True)) for row in rows])
    else:
        widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
        for row in [heading, *rows] if sys.stdout.isatty() else rows:
            show("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _document(studies: dict[str, Study], kinds: dict[str, dict[str, str]]) -> Document:
    from storlab.report.document import Document, Fact, Facts, Section
    from storlab.report.language.format import plural

    def described(study: Study) -> str:
        return f"{study.model.title} ({'; '.join([plural(len(study.cells), 'cell'), *_needs(study)])})"

    parts = {"studies": {name: described(study) for name, study in studies.items()}, **kinds}
    facts = {name: tuple(Fact(*entry) for entry in entries.items()) for name, entries in parts.items()}
    blocks = tuple(Facts(name.capitalize(), (("", those),)) for name, those in facts.items())
    return Document(
        "Studies that ship with Storlab, and what they need in brackets",
        (),
        (Section("list", "", blocks, titled=False),),
    )


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


_MARKS: Mapping[str, tuple[str, Tone]] = {"ok": ("✓", "better"), "warn": ("!", "caution"), "missing": ("✗", "worse")}
_FIRST_STUDIES = ("quick", "quick-directory")
"""What to begin with: the first of them that this machine and user can run."""
_INSTALL = "apt-get install "
_PACKAGES = re.compile(rf"{_INSTALL}(?P<packages>[\w.+-]+(?: [\w.+-]+)*)", re.ASCII)
"""A remedy that only installs, so that several are one command."""


def doctor(json: Json = False) -> None:
    """Say what this machine can do, and how to fix the rest."""
    from storlab.doctor import examine
    from storlab.doctor.machine import Machine

    found = examine(Machine())
    if json:
        print_json([asdict(check) for check in found])
    else:
        from storlab.cli.console import show_document

        show_document(checks_document(found))


def checks_document(found: Sequence[Check]) -> Document:
    """A section a group, then each remedy once, with what it fixes. Closes with what to run next."""
    from storlab.report.document import Code, Document, Fact, Facts, Group, Section, said
    from storlab.report.language.words import listed

    def fact(check: Check) -> Fact:
        mark, tone = _MARKS[check.status]
        return Fact(check.name, check.says, mark=mark, tone=tone)

    groups = {group: tuple(map(fact, checks)) for group, checks in groupby(found, key=lambda check: check.group)}
    sections = [Section(group, group, (Facts("", (("", facts),)),)) for group, facts in groups.items()]
    fixes = [Group(f"For {listed(names)}:", (Code(remedy),)) for remedy, names in remedies(found).items()]
    if fixes:
        sections.append(Section("remedies", "What would fix the rest", tuple(fixes)))
    sections.append(Section("next", "", said(*next_step(found)), titled=False))
    return Document("What this machine can do", (), tuple(sections))


def remedies(found: Sequence[Check]) -> dict[str, list[str]]:
    """Remedy → what it fixes. Packages are one command, which comes first; the others keep their order."""
    packages: dict[str, None] = {}
    installed: list[str] = []
    others: dict[str, list[str]] = {}
    for check in found:
        if plain := _PACKAGES.fullmatch(check.remedy):
            packages |= dict.fromkeys(plain["packages"].split())
            installed.append(check.name)
        elif check.remedy:
            others.setdefault(check.remedy, []).append(check.name)
    return ({_INSTALL + " ".join(packages): installed} if packages else {}) | others


def next_step(found: Sequence[Check]) -> list[str]:
    """What to run now, by this user on this machine; and why not what would come first, where that cannot run."""
    studies = {check.name: check for check in found if check.group == "Shipped studies"}
    against: list[str] = []
    for name in _FIRST_STUDIES:
        study = studies.get(name)
        if study is None or study.status == "ok":
            return [*against, f"Next: `storlab run {name}`"]
        if study.status == "warn":
            return [*against, f"Next: `storlab run {name}` ({study.says})"]
        root = f'; as root: `sudo "$(command -v storlab)" run {name}`' if study.says.startswith("takes root") else ""
        against.append(
            f"`storlab run {name}` cannot run here: it {study.says}{root}."
            if root
            else f"`storlab run {name}` cannot run here: {study.says}."
        )
    return against
