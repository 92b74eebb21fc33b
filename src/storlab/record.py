"""Records that Storlab writes as JSON and reads back: frozen, without unknown keys, and with every value checked.

They are structs of msgspec's, where studies are models of pydantic's: all records of a run are read at every report,
and there may be thousands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from storlab.errors import RecordsError

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
"""Of a trial, a round or a cell: they count from 1."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]


R = TypeVar("R")


def to_json(record: msgspec.Struct) -> bytes:
    """As it stands in its file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def read_record(path: Path, kind: type[R]) -> R:
    """The record in a file. Raises ``RecordsError`` with the file, the key and what is wrong with it.

    Raises ``FileNotFoundError`` and ``NotADirectoryError`` as they are: what that means, the caller knows.
    """
    try:
        data = path.read_bytes()
        return msgspec.json.decode(data, type=kind)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise RecordsError(f"{path} can't be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise RecordsError(f"{path} is damaged: {_why(str(error), data, kind)}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RecordsError(f"{path} is damaged: {error}") from None


def _why(said: str, data: bytes, kind: type) -> str:
    """What msgspec said, with the place before it: ``nodes.vm1.start: expected `float`, got `str```."""
    what, _, place = said.partition(" - at `$")
    whole = value = msgspec.json.decode(data)
    where = ""
    for field, index in re.findall(r"\.(\w+)|\[([\d.]+)\]", place):
        key = field or (_key_at_fault(said, whole, value, kind) if index == "..." else int(index))
        where += f"[{key}]" if isinstance(key, int) else f".{key}"
        value = value[key]
    return f"{where.lstrip('.')}{': ' if where else ''}{what[0].lower()}{what[1:]}"


def _key_at_fault(said: str, whole: Any, mapping: dict[str, Any], kind: type) -> str:
    """Which of the keys, which msgspec does not name: the one for which it says the same without the others."""
    items = dict(mapping)
    for key, value in items.items():
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(whole, kind)
        except msgspec.ValidationError as error:
            if str(error) == said:
                break
    return key
