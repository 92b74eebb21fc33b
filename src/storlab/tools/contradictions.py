"""What the user of files says of them, held against the settings that they name themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from storlab.amounts import parse_duration, parse_size
from storlab.errors import UserError
from storlab.tools.imported import ImportedFile
from storlab.tools.importer import Part

_BETWEEN = re.compile(r"[\s_/-]+")
_SWITCHES = ({"1", "yes", "on", "true", "enabled"}, {"0", "no", "off", "false", "disabled"})
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


def refuse_contradictions(files: Sequence[ImportedFile], read: Sequence[Sequence[Part]]) -> None:
    """Raise ``UserError`` where a factor has the name of a setting that a file gives another value; ``read`` is what
    each file was read as.
    """
    for file, parts in zip(files, read, strict=True):
        given = {plain_name(name): (name, level) for name, level in file.levels.items()}
        for number, part in enumerate(parts, start=1):
            for trait, value in part.traits.items():
                name, level = given.get(plain_name(trait), ("", value))
                if not _same(level, value):
                    of = f"trial {number} of {file.name}" if len(parts) > 1 else file.name
                    raise UserError(
                        f"--factor {name}: {of} itself says {trait} = {value}, and not {level}. Leave the option out, "
                        "as settings in which files differ become factors by themselves; or choose another name if "
                        "something else is meant"
                    )


def plain_name(name: str) -> str:
    """By which ``block size`` and ``block_size`` are the same."""
    return _BETWEEN.sub("", name).casefold()


def _same(one: str, other: str) -> bool:
    """Whether two ways to write a setting mean the same, such as ``4k`` and ``4096``, ``15m`` and ``900 s``."""
    one, other = one.strip().casefold(), other.strip().casefold()
    return one == other or any({one, other} <= words for words in _SWITCHES) or bool(_numbers(one) & _numbers(other))


def _numbers(text: str) -> set[float]:
    found = {float(text)} if _NUMBER.fullmatch(text) else set[float]()
    for parse in (parse_size, parse_duration):
        with suppress(ValueError):
            found.add(float(parse(text)))
    return found
