"""What a value of a key can do to the machine: the types of all texts in study, suite and lab files.

A key without such a type is a number, a size or a choice, and does what its description says. Those that can do more
than a run's own scratch allows have a word, by which the command line permits a value: ``--allow code=/opt/qemu``.
"""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, BaseModel, ValidationInfo
from pydantic.fields import FieldInfo

from storlab.base.permission_words import Word

Key = tuple[str | int, ...]
"""Where a value stands below its model."""


@dataclass(frozen=True)
class Reach:
    """What a value can do. ``word``: what the command line must permit; ``None``: nothing beyond the run's own.

    ``sent``: it is of this machine, from which it is sent to the nodes that need it.
    """

    name: str
    does: str
    word: Word | None = None
    sent: bool = False


@dataclass(frozen=True)
class Found:
    """A value that can do more than the run's own scratch allows, and where it stands below its model."""

    key: Key
    word: Word
    value: str
    sent: bool = False


class Reaching:
    """A model whose values may reach beyond the run's own scratch in a way that no type of a key can say."""

    beyond: ClassVar[Mapping[str, Reach]] = {}
    """Which keys do, and how."""

    def reaches(self) -> Iterable[Found]:
        """The values that do."""
        return ()


FOLDER = "folder"
"""In the context of a validation, the folder of the file that is read."""


def path_from(value: str, info: ValidationInfo) -> str:
    """A path as what is permitted, and what is opened: from the folder of the file that names it."""
    folder: Path | None = (info.context or {}).get(FOLDER)
    if value.startswith("/"):
        return value
    if folder is None:
        raise ValueError("write an absolute path, beginning with /")
    return str(folder.absolute() / value)


PROGRAM = Reach("Program", "is run with Storlab's own rights", "code")
SCRIPT = Reach("Script", "is run within a load's program, which can then do what no option of it says", "code")
LIBRARY = Reach("Library", "is loaded into a load's program", "code")
READS_FILE = Reach("ReadsFile", "is read, and its contents get into the run", "read")
WRITES_FILE = Reach("WritesFile", "is written into: a folder of the run's own is made there", "write")
DEVICE = Reach("Device", "is overwritten", "device")
LISTENS = Reach("Listens", "is an address at which servers of the run listen", "listen")
KERNEL_SETTING = Reach("KernelSetting", "is changed, and restored afterwards", "kernel")
HOST = Reach("HostName", "is a machine that Storlab logs in to, with your keys", "host")

Program = Annotated[str, PROGRAM]
Script = Annotated[str, SCRIPT]
Library = Annotated[str, LIBRARY]
ReadsFile = Annotated[str, READS_FILE, AfterValidator(path_from)]
WritesFile = Annotated[str, WRITES_FILE]
Device = Annotated[str, DEVICE]
Listens = Annotated[str, LISTENS]
KernelSetting = Annotated[str, KERNEL_SETTING]
HostName = Annotated[str, HOST]


def options_of(program: str) -> Reach:
    """Free options of another program, of which only those are taken that a list of Storlab's allows."""
    return Reach("Options", f"is an option of {program}, of which only listed ones are taken")


Command = Annotated[str, Reach("Command", "is a word of a command that runs confined, as loads do")]
Beside = Annotated[str, Reach("Beside", "is read, from the folder of the file that names it")]
OwnCommand = Annotated[str, Reach("OwnCommand", "is a word of a command that runs as you, of a file that you name")]
InGuest = Annotated[str, Reach("InGuest", "counts within a virtual machine only")]
OwnName = Annotated[str, Reach("OwnName", "is a name within the file, or the value that such a name stands for")]
Metric = Annotated[str, Reach("Metric", "is the name or unit of a metric")]
Prose = Annotated[str, Reach("Prose", "is shown, and does nothing")]
Pattern = Annotated[str, Reach("Pattern", "is compared with texts")]
Choice = Annotated[str, Reach("Choice", "is one of Storlab's own list, or a number with a unit")]
Variable = Annotated[str, Reach("Variable", "is an environment variable of a command that runs confined")]
Tree = Annotated[Any, Reach("Tree", "holds other keys, each of which has its own type")]


def reaching(model: BaseModel) -> Iterator[Found]:
    """The values of a model, and of models within it, that need a permission. A key's default needs none."""
    for name, field in _fields(type(model)):
        value = getattr(model, name)
        if name in model.model_fields_set and value != field.default:
            yield from _within(value, field.annotation, tuple(field.metadata), (field.alias or name,))
    if isinstance(model, Reaching):
        yield from model.reaches()


def _fields(model: type[BaseModel]) -> Iterable[tuple[str, FieldInfo]]:
    return model.model_fields.items()


def _within(value: Any, annotation: Any, metadata: tuple[Any, ...], key: Key) -> Iterator[Found]:
    if isinstance(value, BaseModel):
        yield from (replace(found, key=(*key, *found.key)) for found in reaching(value))
        return
    for kind, own in _kinds(annotation, metadata):
        origin, inner = get_origin(kind), get_args(kind)
        if isinstance(value, str):
            for reach in own if kind in (str, Any) else ():
                if reach.word is not None:
                    yield Found(key, reach.word, value, reach.sent)
        elif isinstance(value, Mapping) and origin is dict:
            for name, each in value.items():
                yield from _within(name, inner[0], (), (*key, name))
                yield from _within(each, inner[1], (), (*key, name))
        elif isinstance(value, list | tuple) and origin in (list, tuple):
            for number, each in enumerate(value):
                of = inner[0] if origin is list or inner[1:] == (Ellipsis,) else inner[number]
                yield from _within(each, of, (), (*key, number))


def _kinds(annotation: Any, metadata: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Reach, ...]]]:
    """The types of which a value may be one, without their metadata, each with what these say."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        yield from _kinds(inner, (*metadata, *own))
    elif origin in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _kinds(each, metadata)
    else:
        yield annotation, tuple(each for each in metadata if isinstance(each, Reach))


_NO_TEXTS = (bool, int, float, dt.date, type(None))


@dataclass(frozen=True)
class Text:
    """A place in a model where a text may stand, and what its types say of it; nothing: nobody knows what it can do."""

    key: str
    reaches: tuple[Reach, ...]


def texts_of(model: type[BaseModel], within: str = "") -> Iterator[Text]:
    """All places in a model, and in models within it, where a text may stand: in tables, lists and unions, too."""
    fields = {field.alias or name: (field.annotation, tuple(field.metadata)) for name, field in _fields(model)}
    if model.model_config.get("extra") == "allow":
        extra = get_args(get_type_hints(model, include_extras=True).get("__pydantic_extra__"))
        fields["*"] = (extra[1] if extra else Any), ()
    for key, (annotation, metadata) in fields.items():
        yield from _texts(annotation, metadata, f"{within}{key}")


def _texts(annotation: Any, metadata: tuple[Any, ...], key: str) -> Iterator[Text]:
    for kind, reaches in _kinds(annotation, metadata):
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Literal or kind in _NO_TEXTS:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from texts_of(kind, f"{key}.")
        elif origin is dict:
            yield from _texts(inner[0], (), f"{key}.NAME")
            yield from _texts(inner[1], (), f"{key}.*")
        elif origin in (list, tuple):
            for each in inner:
                yield from _texts(each, (), key) if each is not Ellipsis else ()
        else:
            yield Text(key, reaches)
