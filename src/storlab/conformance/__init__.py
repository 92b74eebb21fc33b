"""What every layer, workload, probe, node kind and importer must do, as checks that a test suite calls.

    def test_the_layer_conforms() -> None:
        check_layer(OverlayLayer, {"metacopy": True})

Each takes a class, the keys of one instance as a study has them, and real results for what it parses; these are damaged
in many ways as well. An ``AssertionError`` names all that is wrong. Storlab's own classes pass the same checks.

``storlab.api`` has these checks, too. The names of both follow the version policy in RELEASING.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from storlab.conformance import results, says
from storlab.errors import ParseError, StorlabError, TrialError
from storlab.layers.base import Layer, LayerContext
from storlab.layers.resources import Resource
from storlab.measurements import Measurements
from storlab.nodes.kind import NodeKind
from storlab.nodes.kinds.local import local_node
from storlab.nodes.undo import Entry, Undo
from storlab.probes.base import Probe, ProbeRecord
from storlab.run.recovery.undoing import undo_table
from storlab.tools.importer import Importer
from storlab.workloads.base import Workload

__all__ = ["check_importer", "check_layer", "check_node_kind", "check_probe", "check_set_up", "check_workload"]

M = TypeVar("M", bound=BaseModel)


def check_layer(cls: type[Layer], keys: Mapping[str, Any] | None = None) -> None:
    """A layer says of itself what is needed to put it into a stack. What it does, ``check_set_up`` looks at."""
    layer = _instance(cls, keys)
    _raise(cls, says.of_literal_name(cls, "layer"), *_common(layer), says.of_undoes(cls), says.of_layer(layer))


def check_workload(cls: type[Workload], keys: Mapping[str, Any] | None = None, raw: Iterable[Path] = ()) -> None:
    """A workload parses what its command left in each folder of ``raw``, and refuses what is damaged."""
    load = _instance(cls, keys)
    parsed = (results.of_folder(folder, load.parse, load.declares(), (TrialError, ParseError)) for folder in raw)
    declared = results.of_declarations(load.declares())
    _raise(cls, says.of_kind_name(cls), *_common(load), declared, says.of_workload(load), *parsed)


def check_probe(cls: type[Probe], keys: Mapping[str, Any] | None = None, records: Iterable[ProbeRecord] = ()) -> None:
    """A probe parses what it saw in each of ``records``, and refuses what is damaged."""
    probe = _instance(cls, keys)
    parsed = []
    for record in records:

        def parse(raw: Path, record: ProbeRecord = record) -> Measurements:
            return probe.parse(ProbeRecord(raw, record.window, record.subject))

        parsed.append(results.of_folder(record.raw, parse, probe.declares(), (StorlabError,)))
    declared = results.of_declarations(cls.metrics)
    _raise(cls, says.of_kind_name(cls), *_common(probe), declared, says.of_probe(probe), *parsed)


def check_node_kind(cls: type[NodeKind], keys: Mapping[str, Any] | None = None) -> None:
    """A kind of node says what it takes, and has a launcher."""
    kind = _instance(cls, keys)
    _raise(cls, says.of_literal_name(cls, "kind"), *_common(kind), says.of_undoes(cls), says.of_node_kind(kind))


def check_importer(cls: type[Importer], files: Iterable[bytes] = (), options: Mapping[str, Any] | None = None) -> None:
    """An importer reads each of ``files``, and refuses what is damaged with a ``ParseError`` that names the file."""
    importer = cls()
    texts, options = list(files), dict(options or {})
    parsed = [results.of_file(importer, text, options) for text in texts]
    primary = results.of_primary(importer, texts, options)
    _raise(cls, says.of_kind_name(cls), says.of_importer(importer), primary, *parsed)


async def check_set_up(layers: Sequence[Layer], folder: Path) -> list[dict[str, Any]]:
    """Set up a whole stack on this machine, in ``folder``, look at what each layer gives, and tear it down twice.

    Gives the facts of each layer.
    """
    scratch = folder / f"storlab-{says.RUN}" / "host"
    scratch.mkdir(parents=True)
    faults, facts, journal = list[str](), list[dict[str, Any]](), list[tuple[Undo, bytes]]()
    async with local_node("host") as node:
        try:
            resource: Resource | None = None
            for position, layer in enumerate(layers):

                async def register(*entries: Entry, layer: Layer = layer) -> None:
                    known = undo_table() | {undo.name: undo for undo in layer.undoes}
                    for name, arguments in entries:
                        assert name in known, f"{layer.layer} registers the undo {name}, which is in nobody's `undoes`"
                        journal.append((known[name], orjson.dumps(dict(arguments))))

                context = LayerContext(node, str(scratch), position, says.RUN, register)
                wanted = layer.gives_above(None if resource is None else type(resource))
                resource = await layer.set_up(resource, context)
                facts.append(await layer.facts(resource, context))
                orjson.dumps(facts[-1])
                if not isinstance(resource, wanted):
                    faults.append(f"{layer.layer} gives a {resource.kind}, and says a {wanted.kind}")
                if resource.node != node.name:
                    faults.append(f"{layer.layer} gives something of node {resource.node}, and works on {node.name}")
        finally:
            for again in (False, True):
                for undo, arguments in reversed(journal):
                    did = await undo.function(node, **orjson.loads(arguments))
                    if again and did is not None:
                        faults.append(f"{undo.name} is not idempotent: once more it {did}")
    faults += [f"{path} is left when all is undone" for path in sorted(scratch.rglob("*"))]
    if faults:
        raise AssertionError("\n".join(faults))
    return facts


def _common(instance: BaseModel) -> tuple[Iterable[str], Iterable[str]]:
    return says.of_keys(instance), says.of_needs(instance)


def _raise(cls: type, *checks: Iterable[str]) -> None:
    found = [] if inspect.getdoc(cls) != inspect.getdoc(cls.__mro__[1]) else ["has no docstring of its own"]
    for check in checks:
        try:
            found += check
        except Exception as error:  # of the class itself: it is what is checked
            found.append(f"raises {type(error).__name__}: {error}")
    if found:
        raise AssertionError("\n".join(f"{cls.__name__} {fault}" for fault in dict.fromkeys(found)))


def _instance(cls: type[M], keys: Mapping[str, Any] | None) -> M:
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise AssertionError(f"{cls.__name__} does not define {', '.join(missing)}")
    try:
        return cls.model_validate(dict(keys or {}))
    except ValidationError as error:
        raise AssertionError(f"{cls.__name__} refuses the keys {dict(keys or {})}: {error}") from None
