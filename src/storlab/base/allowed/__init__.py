"""Options of other programs that a study may write: which, with what values. All else is refused.

Programs have more options than anybody knows, and each version more: one that names a file, a device, a command or an
address would take a study beyond its own scratch. So what may be is listed, in the tables of this folder, a program
each, and ``docs/reference/options.md`` is written from them. A name counts as it stands: another case, a prefix that
the program would complete, or a word in front that it would take off, is another name, and on no list.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from storlab.base.amounts import shown

Value = bool | int | float | str

# Nothing is tried a second way (``(?>…)``, ``*+``): whoever writes a study must not make it take for ever.
_DIGITS = r"\d{1,20}(?:\.\d{0,12})?"
_NUMBER = rf"(?>-?(?:0x[0-9a-fA-F]{{1,16}}|{_DIGITS}(?: ?[A-Za-z]{{1,5}} ?{_DIGITS}){{0,3}} ?[A-Za-z]{{0,5}}%?))"
KINDS: Mapping[str, tuple[str, str]] = {
    "none": ("", "nothing"),
    "switch": ("|0|1|on|off|yes|no|true|false", "on or off"),
    "number": (_NUMBER, "a number, with or without a unit"),
    "numbers": (rf"(?:{_NUMBER})?+(?:[,:/-] ?(?:{_NUMBER})?)*+", "numbers"),
    "name": (r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", "a name: letters, digits, . _ and -"),
    "words": (r"(?!\Z)[A-Za-z0-9_.+%:,-]*(?:/\d[A-Za-z0-9_.+%:,-]*)*", "words and numbers"),
    "text": (r"[^\x00-\x1f]*", "a text"),
    "any": (r"(?s:.*)", "judged by rules of its own"),
}
"""What a value may be, as a pattern of all of it and in words. Only ``text`` and ``any`` have room for a path."""


@dataclass(frozen=True)
class Rule:
    """Some options, and what each may be."""

    what: str
    names: tuple[str, ...]
    """``*`` stands for small letters, digits and ``_``."""
    pattern: str
    said: str

    @property
    def takes_value(self) -> bool:
        return self.pattern != KINDS["none"][0]

    def has(self, name: str) -> bool:
        return name in self.names or any(_matches(each, name) for each in self.names if "*" in each)


@dataclass(frozen=True)
class Allowed:
    """The options of one program, or of one part of it."""

    whose: str
    page: str
    """Where they are documented."""
    rules: tuple[Rule, ...]
    own: Mapping[str, str]
    """Those that Storlab sets itself → what to write instead."""
    instead: Mapping[str, str]
    """Some that can't be set → what gets the same."""

    def problem(self, name: str, value: Value | None = None) -> str | None:
        """What is wrong with an option of this name and value, and what to write; ``None`` where it may be.

        ``value`` is ``None`` for an option without one.
        """
        if name in self.own:
            return f"{shown(name)} is Storlab's own: {self.own[name]}"
        rule = self.rule_of(name)
        if rule is None:
            return f"{shown(name)} is not among {self.whose} that a study can set{self._instead(name)}"
        written = written_as(value)
        free = rule.pattern in (KINDS["any"][0], KINDS["text"][0])
        if re.fullmatch(rule.pattern, written, re.ASCII) is None or (not free and ".." in written.split("/")):
            return f"{shown(name)} can't be {shown(written)} here: it takes {rule.said}"
        return None

    def rule_of(self, name: str) -> Rule | None:
        """The one that lists an option of this name."""
        return next((rule for rule in self.rules if rule.has(name)), None)

    def _instead(self, name: str) -> str:
        if name in self.instead:
            return f": {self.instead[name]}"
        close = get_close_matches(name.lower().replace("-", "_")[:100], [*self.names()], n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ": leave it out"
        return f"{meant} (all are in docs/reference/options.md)"

    def names(self) -> Iterator[str]:
        return (name for rule in self.rules for name in rule.names)

    def first_problem(self, options: Iterable[tuple[str, Value | None]]) -> tuple[str, str] | None:
        """The first of these options that is wrong, and what is wrong with it."""
        found = ((name, self.problem(name, value)) for name, value in options)
        return next(((name, wrong) for name, wrong in found if wrong is not None), None)


class NotAllowed(ValueError):
    """An option can't be set; ``path`` leads to its key, below the key that is checked."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


def written_as(value: Value | None) -> str:
    """As programs read it; what switches is 1 or 0."""
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)


def option_and_value(word: str) -> tuple[str, str | None]:
    """``name=value`` as written in lists of options."""
    name, separator, value = word.partition("=")
    return name, value if separator else None


def together(*tables: Allowed) -> Allowed:
    """What any of them has, under the name of the first."""
    first = tables[0]
    own, instead = dict[str, str](), dict[str, str]()
    for table in reversed(tables):
        own |= table.own
        instead |= table.instead
    return Allowed(first.whose, first.page, tuple(rule for table in tables for rule in table.rules), own, instead)


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[a-z0-9_]*"), name) is not None


@cache
def allowed(program: str, part: str = "") -> Allowed:
    """The table ``part`` of what is listed of a program."""
    table = tables_of(program)[part or program]
    return Allowed(
        table["whose"],
        table["page"],
        tuple(_rule(group) for group in table["group"]),
        table.get("own", {}),
        table.get("instead", {}),
    )


@cache
def tables_of(program: str) -> Mapping[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{program}.toml").read_text())


def programs() -> Sequence[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


def _rule(group: Mapping[str, Any]) -> Rule:
    names = tuple(group["names"].split())
    if "one_of" in group:
        words = group["one_of"].split()
        return Rule(group["what"], names, "|".join(map(re.escape, words)), f"one of {', '.join(words)}")
    if "pattern" in group:
        return Rule(group["what"], names, group["pattern"], group["said"])
    pattern, said = KINDS[group["value"]]
    return Rule(group["what"], names, pattern, said)
