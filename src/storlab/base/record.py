"""Records that Storlab writes as JSON and reads back: frozen, without unknown keys, and with every value checked.

They are structs of msgspec's, where studies are models of pydantic's: all records of a run are read at every report,
and there may be thousands.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from storlab.base.errors import ParseError, RecordsError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
"""Of a trial, a round or a cell: they count from 1."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
RunId = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z-]{0,79}\Z")]
"""Of a run: a part of names of folders, cgroups and sockets, so it leads nowhere."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]


R = TypeVar("R")

_MOST_KEYS = 1000  # that are tried one by one, to name the one at fault


def to_json(record: msgspec.Struct) -> bytes:
    """As it stands in its file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def read_record(path: Path, kind: type[R]) -> R:
    """The record in a file. Raises ``RecordsError`` with the file, the key and what is wrong with it.

    Raises ``FileNotFoundError`` and ``NotADirectoryError`` as they are: what that means, the caller knows.
    """
    try:
        data = read_file(path, RECORD)
        return msgspec.json.decode(data, type=kind)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise RecordsError(f"{path} is damaged: {_why(str(error), data, kind)}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RecordsError(f"{path} is damaged: {error}") from None


def parse_lines(decoder: msgspec.json.Decoder[R], data: bytes, name: str) -> list[R]:
    """Records of a line each; one that is not whole is the last, torn. Raises ``RecordsError`` with file and line."""
    found = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise RecordsError(f"{name}:{number} is damaged: {error}") from None
    return found


def read_answer(text: str | bytes, kind: type[R], program: str) -> R:
    """What a program printed as JSON. Raises ``ParseError``: a node's own programs may print anything."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"what {program} printed makes no sense: {error}") from None


def _why(said: str, data: bytes, kind: type) -> str:
    """What msgspec said, with the place before it: ``nodes.vm1.start: expected `float`, got `str```.

    As much of the place as can be found: a key may be there twice, and what follows the mistake need not be JSON.
    """
    what, _, place = said.partition(" - at `$")
    where = ""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError):
        whole = value = msgspec.json.decode(data)
        for field, index in re.findall(r"\.(\w+)|\[([\d.]+)\]", place):
            key = field or (_key_at_fault(said, whole, value, kind) if index == "..." else int(index))
            where += f"[{key}]" if isinstance(key, int) else f".{key}"
            value = value[key]
    return f"{where.lstrip('.')}{': ' if where else ''}{what[0].lower()}{what[1:]}"


def _key_at_fault(said: str, whole: Any, mapping: Any, kind: type) -> str:
    """Which of the keys, which msgspec does not name: the one for which it says the same without the others."""
    items = dict(mapping) if isinstance(mapping, dict) and len(mapping) <= _MOST_KEYS else {}
    for key, value in items.items():
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(whole, kind)
        except msgspec.ValidationError as error:
            if str(error) == said:
                return str(key)
    raise LookupError(said)
