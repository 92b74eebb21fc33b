"""What a class says of itself: its name, keys, needs and undoes, and what it takes and gives."""

from __future__ import annotations

import ast
import inspect
import pickle
import random
import re
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from storlab.layers.base import Crossing, Layer
from storlab.layers.resources import Format, Resource
from storlab.metrics import Specs
from storlab.nodes.kind import Launcher, NodeKind, Services, Transport
from storlab.nodes.needs import Needs
from storlab.nodes.undo import Undo
from storlab.probes.base import Probe
from storlab.probes.subject import Kind
from storlab.reach import texts_of
from storlab.run.recovery.undoing import undo_table
from storlab.tools.importer import Importer
from storlab.workloads.base import Workload

Faults = Iterator[str]
"""What is wrong, each as the end of a sentence that begins with the name of the class."""

RUN = "20260102-030405-abcd"
"""The id of a run that never was."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_UNDO = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_REGISTER = ("register_undo", "announce")


def of_literal_name(cls: type[BaseModel], field: str) -> Faults:
    """Its name in study files, where a field has it, which tells the classes of a table apart."""
    name = cls.model_fields[field].default
    if get_args(cls.model_fields[field].annotation) != (name,):
        yield f'has no `{field}: Literal["name"] = "name"`'
    elif not _NAME.fullmatch(name):
        yield f"is called {name!r}: names are lower-case words, with hyphens between"


def of_kind_name(cls: Any) -> Faults:
    """Its name in study files and commands, where the class has it."""
    if "kind" not in vars(cls):
        yield 'has no `kind: ClassVar[str] = "name"` of its own'
    elif not _NAME.fullmatch(cls.kind):
        yield f"is called {cls.kind!r}: names are lower-case words, with hyphens between"


def of_keys(instance: BaseModel) -> Faults:
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


def of_needs(instance: Any) -> Faults:
    """Programs and privileges, the same each time."""
    needs: object = instance.needs()
    if not isinstance(needs, Needs):
        yield f"needs() gives {needs!r}"
        return
    if instance.needs() != needs:
        yield "needs() gives something else each time"
    for name in needs.programs:
        if not name.strip():
            yield f"needs the program {name!r}"


def of_undoes(cls: Any) -> Faults:
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
        if (
            each in (Layer, Crossing, NodeKind)
            or "[" in each.__name__
            or each.__module__.startswith(("pydantic", "builtins", "abc"))
        ):
            continue
        for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in _REGISTER and call.args:
                name = call.args[0]
                found |= {str(name.value)} if isinstance(name, ast.Constant) else set()
    return found


def of_layer(layer: Layer) -> Faults:
    """What it takes and gives, and its sizes."""
    cls: Any = type(layer)
    if not cls.takes or not all(each is None or issubclass(each, Resource) for each in cls.takes):
        yield "takes what is no tuple of resources; None: it can be the lowest"
        return
    if not issubclass(cls.gives, Resource):
        yield "gives what is no resource"
        return
    for below in cls.takes:
        if not issubclass(layer.gives_above(below), Resource):
            yield f"gives_above({below}) is no resource"
    if not layer.label().strip() or "\n" in layer.label():
        yield f"has the label {layer.label()!r}: a few characters for people"
    if layer.space() < 0 or layer.overcommitted() < 0 or (layer.capacity() or 0) < 0:
        yield "takes or holds fewer than no bytes"
    if layer.file_format() not in get_args(Format):
        yield f"has the file format {layer.file_format()!r}"
    if not all(isinstance(word, str) for word in (*cls.flush, *cls.drop, *layer.chains())):
        yield "has a flush, a drop or chains that are no tuples of words"
    layer.check_above(None)
    if isinstance(layer, Crossing):
        if layer.transport not in get_args(Transport):
            yield f"has the transport {layer.transport!r}"
        if None in cls.takes:
            yield "crosses from nothing: a crossing must take something"


def of_workload(load: Workload) -> Faults:
    """What it runs on, and what it says for the plan."""
    for taken in (load.accepts, load.takes()):
        if not taken or not all(issubclass(each, Resource) for each in taken):
            yield "accepts or takes what is no tuple of resources"
    if load.space() < 0 or (load.duration(1.0) or 0.0) < 0:
        yield "takes less than no space or time"
    if load.leaves_out(1.0).endswith("."):
        yield "leaves_out() ends with a full stop: it stands within a sentence"


def of_probe(probe: Probe) -> Faults:
    """What it watches."""
    if not probe.watches or not probe.watches <= frozenset(get_args(Kind)):
        yield f"watches {set(probe.watches)}, of which a node has only {', '.join(get_args(Kind))}"
    known = Specs(probe.metrics)
    if any(known.find(spec.name) != spec for spec in probe.declares()):
        yield "declares metrics that are not among its `metrics`"


def of_node_kind(kind: NodeKind) -> Faults:
    """What its nodes take, and that there is somebody to open them."""
    if not isinstance(getattr(kind, "session", None), bool):
        yield "does not say whether its nodes are opened for the whole `session`"
    if not kind.transports <= frozenset(get_args(Transport)):
        yield f"has the transports {set(kind.transports)}"
    if kind.memory_needed() < 0 or kind.start_time() < 0:
        yield "takes less than no memory or time"
    if "\n" in kind.describe():
        yield "describe() has several lines"
    if not isinstance(kind.launcher(Services(RUN)), Launcher):
        yield "has no launcher"


def of_importer(importer: Importer) -> Faults:
    """What it says for the head of a report, and which files it knows."""
    if not importer.raw_name or "/" in importer.raw_name:
        yield f"keeps its files as {importer.raw_name!r}: a file's name"
    primary: object = importer.primary
    if not isinstance(primary, tuple):
        yield "has a `primary` that is no tuple of metrics"
    if not importer.unknown.strip() or importer.unknown.endswith("."):
        yield "has an `unknown` that is empty or ends with a full stop: it stands within a sentence"
    if importer.knows(b"") or importer.knows(random.Random(0).randbytes(4096)):
        yield "knows() takes an empty file, or any bytes, for one of its own"
