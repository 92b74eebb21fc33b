"""Ways of tearing something down, which layers, node kinds and runs declare and ``run/recovery/undoing.py`` collects.

Only what is Storlab's own is torn down: everything that it puts somewhere bears the run's id in its name. What does not
is never removed, unmounted or detached, whatever a journal says.
"""

from __future__ import annotations

import asyncio
import inspect
import os.path
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Unpack, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from storlab.base.errors import StorlabError
from storlab.nodes.agent import steps
from storlab.nodes.node import Node

LONG = 3600.0
"""For files of any size: a file system may tell its disk of every block that a large one frees."""

Proof = Literal["note", "itself"]
Function = Callable[..., Awaitable[str | None]]

Entry = tuple[str, Mapping[str, Any]]
"""What a journal gets of something before it is set up: the name of the way to undo it, and its arguments."""
RegisterUndo = Callable[[Unpack[tuple[Entry, ...]]], Awaitable[None]]
"""Journals all of these entries, durably, before it returns."""

OF_RUN = "of the run"
"""Marks, in the type of an argument, that it names what is set up: ``Annotated[str, Meta(…), OF_RUN]``. Such a name
contains ``storlab-`` and the run's id, or is refused."""

AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=4095)]
RunPath = Annotated[AbsolutePath, OF_RUN]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:+-]{1,255}$")]
RunName = Annotated[Name, OF_RUN]
RunId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,127}$")]
Nonce = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
Port = Annotated[int, Meta(ge=1, le=65535)]
IscsiName = Annotated[str, Meta(pattern=r"^iqn\.[A-Za-z0-9.:-]{1,220}$"), OF_RUN]
NvmeName = Annotated[str, Meta(pattern=r"^nqn\.[A-Za-z0-9.:-]{1,220}$"), OF_RUN]


@dataclass(frozen=True)
class Undo:
    """One way of tearing something down, by the ``name`` that journals use.

    ``function`` gets the node that it was set up on and, by name, the arguments from the journal, and returns what it
    did, or ``None`` if nothing was set up any more. The types of its parameters are what the arguments are checked
    against before anything else looks at them: a text without a pattern or a length is anything. It must be idempotent,
    and must touch nothing but what its arguments name: it may run long after, by ``storlab clean``, when somebody else
    has taken what was ours. ``patience``: seconds that it may take; the default is for unmounting, which writes back
    whatever the page cache still holds. ``outlives_boot``: what it undoes is still there after its machine was booted
    again, as files are. ``order``: of what dead runs left, of which no journal says what was set up last, the smallest
    goes first.

    ``proof``: what shows that the run has set it up, for a journal may be somebody else's work. By default that is the
    run's id in all arguments that are ``OF_RUN``; if none is, as of a value that is restored, a note beside the
    journal, in a folder where nobody else can write. ``"note"`` asks for both, ``"itself"`` for neither: what the
    function finds proves it.
    """

    name: str
    function: Function
    patience: float = 120.0
    outlives_boot: bool = False
    proof: Proof | None = None
    order: int = 0

    async def __call__(self, node: Node, /, **arguments: Any) -> str | None:
        return await self.function(node, **arguments)

    @cached_property
    def arguments(self) -> type[Struct]:
        """A model of the arguments, from the function's signature. Raises ``KeyError`` for one without a type."""
        hints = get_type_hints(self.function, include_extras=True)
        _, *own = inspect.signature(self.function).parameters.values()
        fields = [
            (each.name, hints[each.name], *(() if each.default is each.empty else (each.default,))) for each in own
        ]
        return msgspec.defstruct(self.name, fields, frozen=True, forbid_unknown_fields=True)

    @cached_property
    def naming(self) -> tuple[str, ...]:
        hints = get_type_hints(self.function, include_extras=True)
        return tuple(name for name, hint in hints.items() if name != "return" and _names_it(hint))

    @property
    def noted(self) -> bool:
        """Whether it takes a note beside the journal, since no name of its arguments shows whose it is."""
        return self.proof == "note" or (self.proof is None and not self.naming)

    def check(self, arguments: Mapping[str, Any], run: str, *, noted: bool = False) -> None:
        """Raise ``StorlabError`` unless these can be arguments from the journal of this run, and name nothing else's.

        Whatever bears the name of a run, bears this one's; what is ``OF_RUN`` does. ``noted``: there is a note of it.
        """
        try:
            msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError as error:
            raise StorlabError(f"its arguments are damaged ({error}): left alone") from None
        for text in _texts(arguments):
            if others := {name for name in _RUN.findall(text) if name != run}:
                raise StorlabError(f"{text} belongs to the run {others.pop()}, not to {run}: left alone")
        if arguments.get("run", run) != run:
            raise StorlabError(f"it belongs to the run {arguments['run']}, not to {run}: left alone")
        for field in self.naming:
            for text in _texts(arguments.get(field)):
                if run not in _RUN.findall(text):
                    raise StorlabError(f"{text} is not Storlab's own, for its name lacks storlab-{run}: left alone")
        if self.noted and not noted:
            raise StorlabError("only the journal says that the run has changed this, and anybody may have written it: "
                               "left alone")  # fmt: skip


def undo(
    name: str,
    *,
    patience: float = 120.0,
    outlives_boot: bool = False,
    proof: Proof | None = None,
    order: int = 0,
) -> Callable[[Function], Undo]:
    """Make an ``Undo`` of the function below; a layer or node kind then lists it in its ``undoes``."""
    return lambda function: Undo(name, function, patience, outlives_boot, proof, order)


def _names_it(hint: object) -> bool:
    return OF_RUN in getattr(hint, "__metadata__", ()) or any(map(_names_it, get_args(hint)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _texts(each)


_BUSY_TRIES = 40
_BUSY_WAIT = 0.25  # s; the kernel may still drop references of processes that were just killed
_NAME = re.compile(r"\.?storlab-(?P<run>\d{8}-\d{6}-[0-9a-f]{4})(-[^/]*)?")
_RUN = re.compile(r"(?<![A-Za-z0-9])storlab-(\d{8}-\d{6}-[0-9a-f]{4})(?![0-9a-f])")

_FOREIGN = ("a symbolic link is in its way", "it belongs to another user")
"""What the agent says of a path that is not what it was when it was made: others may have made a folder of that name,
or a link."""


def run_of(name: str) -> str | None:
    """The run whose name a folder, pool or network namespace of Storlab's bears; ``None``: it is none of Storlab's."""
    found = _NAME.fullmatch(name)
    return None if found is None else found["run"]


def refuse_foreign(path: str, *, itself: bool = False) -> None:
    """Raise ``StorlabError`` unless ``path`` lies in a folder of Storlab's, or, with ``itself``, is one."""
    names = path.split("/")
    plain = path.startswith("/") and os.path.normpath(path) == path
    if not plain or not any(_NAME.fullmatch(name) for name in (names[-1:] if itself else names[:-1])):
        raise StorlabError(f"{path} is not Storlab's own: left alone")


def refuse_foreign_pool(name: str) -> None:
    """Raise ``StorlabError`` unless ``name`` is that of a storage pool of Storlab's, or of something in one."""
    if not _NAME.fullmatch(name.partition("/")[0]):
        raise StorlabError(f"the pool of {name} is not Storlab's own: left alone")


async def is_there(node: Node, path: str, *, itself: bool = False) -> bool:
    """Whether something is at this path in a folder of Storlab's, or, with ``itself``, whether that folder is.

    Raises ``StorlabError`` for what is not Storlab's: by its name, by its owner, or as a symbolic link leads there.
    """
    return (await _carried_out(node, steps.owned, path, itself=itself)).there


async def _carried_out(node: Node, step: Callable[[str, str], steps.Step], path: str, *, itself: bool) -> steps.Done:
    refuse_foreign(path, itself=itself)
    top = path if itself else own_folders(path)[0]
    (done,) = await node.carry_out(step(path, top), go_on=True)
    if done.result.message in _FOREIGN:
        raise StorlabError(f"{path} is not what Storlab made there, for {done.result.message}: left alone")
    return done.check(node.name)


def own_folders(path: str) -> list[str]:
    """Of the folders that ``path`` lies in, those of Storlab's, the outermost first."""
    names = path.split("/")
    first = next((at for at, name in enumerate(names) if _NAME.fullmatch(name)), len(names))
    return ["/".join(names[:at]) for at in range(first + 1, len(names))]


async def remove_folder(node: Node, path: str, *, itself: bool = True) -> str | None:
    """Remove a folder of Storlab's with all that it holds; says so, or ``None`` where there is none.

    Raises ``StorlabError`` for what is not Storlab's. Without ``itself``, it lies in one that bears a run's name.
    """
    return f"removed {path}" if (await _carried_out(node, steps.remove, path, itself=itself)).there else None


async def until_free(node: Node, argv: Sequence[str]) -> bool:
    """Try a command again for some seconds, as long as it fails: what was just killed may still hold what it undoes."""
    for _ in range(_BUSY_TRIES):
        if (await node.run(argv, check=False)).ok:
            return True
        await asyncio.sleep(_BUSY_WAIT)
    return False
