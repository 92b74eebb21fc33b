"""The page ``docs/reference/reach.md``, written from the types of all keys by ``python -m tools.reach_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from storlab.base.permission_words import WORDS
from storlab.base.reach import Reach, Reaching, texts_of
from storlab.lab import LabFile
from storlab.nodes.shaping.keys import Network
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.schema import PowerCuts, StudyFile, Trial, group_model
from storlab.suites.expectations import ExpectationFile
from storlab.suites.suite_file import SuiteFile

_START = """# What a study can do to your machine

<!-- Written by `python -m tools.reach_reference`; change the types of keys, or that file. -->

A study works in a scratch folder of the run's own, and its loads run confined. What it wants beyond that stands in
one of the keys below, each of which has a type that says what its value can do.
`storlab plan --wants STUDY` lists what a study wants, `storlab suite list --wants` what a suite file does; both run
nothing.

| word | what it permits |
| --- | --- |
"""
_KEYS = """
A key's default wants nothing. Nor do layers and loads in a virtual machine: their files, programs and kernel are
the guest's. Its own keys do, as they are about the machine that runs it; so does a folder of this machine that is sent
there (`pjdfstest.path`, which wants `read` then). `tcp` of nodes with a network of the run's own wants nothing, either.

## Keys that want a permission

| where | key | its value | word |
| --- | --- | --- | --- |
"""
_OTHERS = """
## Keys that want none

All other keys are numbers, sizes, choices, or texts of one of these types:

| its value | where |
| --- | --- |
"""
_MANY = 6


def study_models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Also those that other packages add."""
    yield "study", StudyFile
    yield from ((f"node {kind}", group_model(kind)) for kind in node_kinds())
    yield "network", Network
    yield from ((f"layer {kind}", cls) for kind, cls in layer_types().items())
    yield from ((f"workload {kind}", cls) for kind, cls in workload_types().items())
    yield from ((f"probe {kind}", cls) for kind, cls in probe_types().items())
    yield "trial", Trial
    yield "crash", PowerCuts


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """All that users write, by where it stands; without what other packages add on this machine."""
    yield from ((where, model) for where, model in study_models() if model.__module__.startswith("storlab."))
    yield "suite file", SuiteFile
    yield "expectations", ExpectationFile
    yield "lab file", LabFile


def reference() -> str:
    """The page."""
    rows: list[tuple[str, str, Reach]] = []
    for where, model in models():
        rows += [(where, text.key, reach) for text in texts_of(model) for reach in text.reaches]
        own = getattr(model, "network_of", "machine") == "run"
        rows += [(where, key, reach) for key, reach in _beyond(model) if not (own and key.startswith("tcp."))]
    page = _START + "".join(f"| `{word}=…` | {what} |\n" for word, what in WORDS.items()) + _KEYS
    for where, key, reach in dict.fromkeys(rows):
        if reach.word is not None and where != "lab file":
            page += f"| {where} | `{key}` | {reach.does} | `{reach.word}` |\n"
    page += _OTHERS
    others: dict[str, dict[str, None]] = {}
    for where, key, reach in rows:
        if reach.word is None or where == "lab file":
            others.setdefault(reach.does, {})[f"{where} `{key}`"] = None
    for does, places in others.items():
        named = [*places]
        rest = f" and {len(named) - _MANY} more" if len(named) > _MANY else ""
        page += f"| {does} | {', '.join(named[:_MANY])}{rest} |\n"
    return page


def _beyond(model: type[BaseModel], within: str = "") -> Iterator[tuple[str, Reach]]:
    """Of a model, and of models within it: keys that reach beyond the run in a way that their type does not say."""
    if issubclass(model, Reaching):
        beyond: Mapping[str, Reach] = model.beyond
        yield from ((within + key, reach) for key, reach in beyond.items())
    for name, field in model.model_fields.items():
        for inner in _inner(field.annotation):
            yield from _beyond(inner, f"{within}{field.alias or name}.")


def _inner(annotation: object) -> list[type[BaseModel]]:
    found = getattr(annotation, "__args__", (annotation,))
    return [each for each in found if isinstance(each, type) and issubclass(each, BaseModel)]


if __name__ == "__main__":
    sys.stdout.write(reference())
