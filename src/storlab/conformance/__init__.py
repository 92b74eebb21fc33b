"""What every layer, workload, probe, kind of node and importer must do, as a check that a test suite calls:

    def test_it_conforms() -> None:
        check_extension(OverlayLayer, {"metacopy": True})

It takes a class, the keys of one instance as a study has them, and real results for what it parses; these are damaged
in many ways as well. An ``AssertionError`` names all that is wrong. Storlab's own classes pass the same check.

``storlab.api`` has both functions, too. Their names follow the version policy in RELEASING.md.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import random
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import orjson
from pydantic import BaseModel, ValidationError

from storlab.base.errors import ParseError, TrialError
from storlab.base.reach import texts_of
from storlab.conformance import results
from storlab.conformance.results import SOURCE, Faults
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.resources import Resource
from storlab.metrics import Specs
from storlab.nodes.kind import Launcher, NodeKind, Services, Transport
from storlab.nodes.kinds.local import local_node
from storlab.nodes.undo import Entry, Undo
from storlab.probes.base import Probe
from storlab.probes.subject import Kind
from storlab.run.recovery.undoing import undo_table
from storlab.tools.importer import Importer
from storlab.workloads.base import Workload

__all__ = ["check_extension", "check_set_up"]

Extension = type[Layer] | type[Workload] | type[Probe] | type[NodeKind] | type[Importer]
_RUN = "20260102-030405-abcd"  # a run that never was
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_BASES, _REGISTER = (Layer, Crossing, NodeKind), ("register_undo", "announce")
_UNDO = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


def check_extension(
    cls: Extension,
    keys: Mapping[str, Any] | None = None,
    examples: Iterable[Any] = (),
    options: Mapping[str, Any] | None = None,
) -> None:
    """A class says of itself what a study needs, and parses ``examples``, whole and damaged, as it should.

    Examples are raw folders for a workload, ``ProbeRecord``s for a probe, contents of files for an importer, which
    takes ``options`` as well. What a layer does, ``check_set_up`` looks at.
    """
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise AssertionError(f"{cls.__name__} does not define {', '.join(missing)}")
    own = inspect.getdoc(cls) != inspect.getdoc(cls.__mro__[1])
    parts: list[Iterable[str]] = [[] if own else ["has no docstring of its own"]]
    if issubclass(cls, Importer):
        importer, given, texts = cls(), dict(options or {}), list(examples)
        parts += [_name(cls), _importer(importer, texts, given)]
        parts += [results.of_file(importer, text, given) for text in texts]
    else:
        try:
            instance = cast("type[BaseModel]", cls).model_validate(dict(keys or {}))
        except ValidationError as error:
            raise AssertionError(f"{cls.__name__} refuses the keys {dict(keys or {})}: {error}") from None
        parts += [_keys(instance), _needs(instance)]
        match instance:
            case Layer():
                parts += [_name(cls, "layer"), _undoes(cls), _layer(instance)]
            case NodeKind():
                parts += [_name(cls, "kind"), _undoes(cls), _node_kind(instance)]
            case Workload():
                declared = instance.declares()
                parts += [_name(cls), results.of_declarations(declared), _workload(instance)]
                parts += [
                    results.of_folder(raw, instance.parse, declared, (TrialError, ParseError)) for raw in examples
                ]
            case Probe():
                parts += [_name(cls), results.of_declarations(instance.metrics), _probe(instance)]
                parts += [results.of_record(instance, record) for record in examples]
    found: list[str] = []
    for part in parts:
        try:
            found += part
        except Exception as error:  # of the class itself: it is what is checked
            found.append(f"raises {type(error).__name__}: {error}")
    if found:
        raise AssertionError("\n".join(f"{cls.__name__} {fault}" for fault in dict.fromkeys(found)))


async def check_set_up(layers: Sequence[Layer], folder: Path) -> list[dict[str, Any]]:
    """Set up a whole stack on this machine, in ``folder``, look at what each layer gives, and tear it down twice.

    Gives the facts of each layer.
    """
    scratch = folder / f"storlab-{_RUN}" / "host"
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

                context = LayerContext(node, str(scratch), position, _RUN, register)
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


def _name(cls: Any, field: str = "") -> Faults:
    """Its name in study files and commands: of a ``field`` that tells the classes of a table apart, or of the class."""
    if field and get_args(cls.model_fields[field].annotation) != (cls.model_fields[field].default,):
        yield f'has no `{field}: Literal["name"] = "name"`'
    elif not field and "kind" not in vars(cls):
        yield 'has no `kind: ClassVar[str] = "name"` of its own'
    elif not _NAME.fullmatch(name := cls.model_fields[field].default if field else cls.kind):
        yield f"is called {name!r}: names are lower-case words, with hyphens between"


def _keys(instance: BaseModel) -> Faults:
    """Its keys are described, checked, and the same once they were stored."""
    cls = type(instance)
    for name, field in cls.model_fields.items():
        if not field.description and name not in ("layer", "kind"):
            yield f"does not describe its key {name}: Field(…, description=…)"
    for text in texts_of(cls):
        if not text.reaches:
            yield f"does not say what a text of its key {text.key} can do: take a type of storlab.api, such as OwnName"
    if cls.model_config.get("extra", "ignore") == "ignore" or not cls.model_config.get("frozen"):
        yield "changes model_config: unknown keys must not be ignored, and instances be frozen"
    if cls.model_validate(instance.model_dump(exclude_unset=True, by_alias=True)) != instance:
        yield "is another one after model_dump() and model_validate()"
    if cls.model_validate_json(instance.model_dump_json(exclude_unset=True, by_alias=True)) != instance:
        yield "is another one after model_dump_json() and model_validate_json()"
    if pickle.loads(pickle.dumps(instance)) != instance:
        yield "is another one after pickling"
    cls.model_json_schema()


def _needs(instance: Any) -> Faults:
    needs = instance.needs()
    if instance.needs() != needs:
        yield "needs() gives something else each time"
    if nameless := [name for name in needs.programs if not name.strip()]:
        yield f"needs the program {nameless[0]!r}"


def _undoes(cls: Any) -> Faults:
    """They have names of their own, and all that the class registers are somebody's."""
    names = [undo.name for undo in cls.undoes]
    for undo in cls.undoes:
        if not _UNDO.fullmatch(undo.name):
            yield f"has an undo {undo.name!r}: write what.action, as loop.detach"
        if names.count(undo.name) > 1 or undo_table().get(undo.name, undo) is not undo:
            yield f"has an undo {undo.name}, and there is another one of that name"
        if not inspect.iscoroutinefunction(undo.function) or not _has_types(undo):
            yield f"has an undo {undo.name} that is no `async def (node, …)` with a type for each argument"
        if undo.patience <= 0:
            yield f"has an undo {undo.name} with a patience of {undo.patience} s"
    for name in sorted(_registered(cls) - {*names} - undo_table().keys()):
        yield f"registers the undo {name}, which is among nobody's `undoes`"


def _has_types(undo: Undo) -> bool:
    try:
        return bool(undo.arguments)
    except (KeyError, ValueError):
        return False


def _registered(cls: type) -> set[str]:
    """The undo names that are written in the class, and in those that it derives from."""
    found = set[str]()
    for each in cls.__mro__:
        if each in _BASES or "[" in each.__name__ or each.__module__.startswith(("pydantic", "builtins", "abc")):
            continue
        for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in _REGISTER and call.args:
                name = call.args[0]
                found |= {str(name.value)} if isinstance(name, ast.Constant) else set()
    return found


def _layer(layer: Layer) -> Faults:
    cls: Any = type(layer)
    if not cls.takes or not all(each is None or issubclass(each, Resource) for each in cls.takes):
        yield "takes what is no tuple of resources; None: it can be the lowest"
        return
    if not all(issubclass(layer.gives_above(below), Resource) for below in cls.takes):
        yield "gives_above() is no resource"
    if not layer.label().strip() or "\n" in layer.label():
        yield f"has the label {layer.label()!r}: a few characters for people"
    if min(layer.space(), layer.overcommitted(), layer.capacity() or 0) < 0:
        yield "takes or holds fewer than no bytes"
    layer.check_above(None)
    if isinstance(layer, Crossing) and layer.transport not in get_args(Transport):
        yield f"has the transport {layer.transport!r}"
    if isinstance(layer, Crossing) and None in cls.takes:
        yield "crosses from nothing: a crossing must take something"


def _workload(load: Workload) -> Faults:
    if not load.accepts or not load.takes():
        yield "accepts or takes nothing"
    if load.space() < 0 or (load.duration(1.0) or 0.0) < 0:
        yield "takes less than no space or time"
    if load.leaves_out(1.0).endswith("."):
        yield "leaves_out() ends with a full stop: it stands within a sentence"


def _probe(probe: Probe) -> Faults:
    if not probe.watches or not probe.watches <= frozenset(get_args(Kind)):
        yield f"watches {set(probe.watches)}, of which a node has only {', '.join(get_args(Kind))}"
    known = Specs(probe.metrics)
    if any(known.find(spec.name) != spec for spec in probe.declares()):
        yield "declares metrics that are not among its `metrics`"


def _node_kind(kind: NodeKind) -> Faults:
    if not isinstance(getattr(kind, "session", None), bool):
        yield "does not say whether its nodes are opened for the whole `session`"
    if not kind.transports <= frozenset(get_args(Transport)):
        yield f"has the transports {set(kind.transports)}"
    if kind.memory_needed() < 0 or kind.start_time() < 0:
        yield "takes less than no memory or time"
    if "\n" in kind.describe():
        yield "describe() has several lines"
    if not isinstance(kind.launcher(Services(_RUN)), Launcher):
        yield "has no launcher"


def _importer(importer: Importer, texts: Sequence[bytes], options: Mapping[str, Any]) -> Faults:
    if not importer.raw_name or "/" in importer.raw_name:
        yield f"keeps its files as {importer.raw_name!r}: a file's name"
    if not importer.unknown.strip() or importer.unknown.endswith("."):
        yield "has an `unknown` that is empty or ends with a full stop: it stands within a sentence"
    if importer.knows(b"") or importer.knows(random.Random(0).randbytes(4096)):
        yield "knows() takes an empty file, or any bytes, for one of its own"
    parts = [part for text in texts for part in importer.read(text, SOURCE, options)]
    metrics = {metric for part in parts for metric in part.measured.metrics["metric"]}
    if importer.primary and metrics and metrics.isdisjoint(importer.primary):
        yield f"begins reports with {', '.join(importer.primary)}, and gives none of these"
