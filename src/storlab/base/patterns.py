"""Patterns that strangers write, in studies and in extensions: matched in time that grows with the text, whatever they
are.

Regular expressions are RE2's (https://github.com/google/re2/wiki/Syntax), which never tries one way after the other.
JMESPath doubles a value as often as its author likes; how often is known before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from re import Match
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jmespath.parser import ParsedResult

MOST_TEXT = 64 * 1024**2
"""Bytes of a text that a pattern is looked for in."""
_LONGEST = 4096  # characters of a pattern
_MOST_STEPS = 2**33  # of one search, at worst: the pattern's instructions by the text's bytes; half a minute
_MOST_SECONDS = 20.0  # of CPU for all matches in a text, each of which is a search
_MOST_GROWTH = 1000  # times as large as the document

_REPEATS = "RE2 repeats at most 1000 times"
_INSTEAD = (
    (r"\(\?(<?[=!])", "RE2 has no lookaround: write what stands around the number into the pattern, outside its group"),
    (r"\\[1-9]|\(\?P\Z|\(\?\(", "RE2 has no back references: write the text, or what it may be, again"),
    (r"\\Z", r"write \z for the end of the text"),
    (r"\(\?>|[+*?}]\+", "RE2 has no atomic groups and needs none: write (?:…) and a plain repetition"),
    (r"\(\?[a-zA-Z]*[xaLu]", "of flags, RE2 has (?i), (?m), (?s) and (?U)"),
    (r"\(\?#", "RE2 has no comments"),
    (r"\{\d+", _REPEATS),
)


class PatternError(ValueError):
    """A pattern that can't be one, or would take too long; in one sentence, with what to write instead."""


class Pattern:
    """A regular expression, in which ``^`` and ``$`` are the ends of lines. Raises ``PatternError``."""

    def __init__(self, written: str) -> None:
        import re2

        if len(written) > _LONGEST:
            raise PatternError(f"it has more than {_LONGEST} characters")
        if re.search(r"\{\d{7}", written):  # which RE2 takes for the text itself
            raise PatternError(_REPEATS)
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(b"(?m)" + written.encode(errors="replace"), options)
        except re2.error as error:
            said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
            instead = (words for form, words in _INSTEAD if re.search(form, said))
            raise PatternError("; ".join([said.replace("(?m)", "", 1), *list(instead)[:1]])) from None
        self.groups: int = self._compiled.groups
        self.names: Mapping[str, int] = {name.decode(): at for name, at in self._compiled.groupindex.items()}

    def is_in(self, data: bytes) -> bool:
        return self._compiled.search(data) is not None

    def matches(self, data: bytes) -> Iterator[Match[bytes]]:
        """Raises ``PatternError`` where they would take too long to find."""
        if len(data) > MOST_TEXT or len(data) * self._compiled.programsize > _MOST_STEPS:
            raise PatternError(f"it would take too long on {len(data) / 1024**2:.1f} MiB: let the program print less")
        began = time.thread_time()
        for match in self._compiled.finditer(data):
            if time.thread_time() - began > _MOST_SECONDS:
                raise PatternError(
                    f"its matches take more than {_MOST_SECONDS:g} s to find: begin it with words that the line has"
                )
            yield match

    def first_groups(self, text: str) -> Iterator[str]:
        """What the first group has in each match; empty where it takes no part. Raises ``PatternError``."""
        for match in self.matches(text.encode(errors="replace")):
            yield (match[1] or b"").decode(errors="replace")


@lru_cache(128)
def pattern(written: str) -> Pattern:
    return Pattern(written)


@lru_cache(128)
def json_path(written: str) -> ParsedResult:
    """A JMESPath, compiled once. Raises ``PatternError``, also where its result could be far larger than a document."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(written) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST} characters")
    try:
        compiled = jmespath.compile(written)
        growth = _growth(compiled.parsed)
    except RecursionError:
        raise PatternError("it is nested too deeply") from None
    except JMESPathError as error:
        raise PatternError(str(error).splitlines()[0].removesuffix(", for expression:")) from None
    if growth > _MOST_GROWTH:
        raise PatternError(f"its lists of several values make more than {_MOST_GROWTH} times the document: remove some")
    return compiled


def _growth(node: Any) -> int:
    """How many times its result can be as large as a document, at most: each list of several values has as many."""
    if node["type"] == "function_expression" and node["value"] == "join":
        raise PatternError("it has join(), whose result is no number")
    growth = len(node["children"]) if node["type"].startswith("multi_select") else 1
    for child in node["children"]:
        growth *= _growth(child) if isinstance(child, dict) else 1  # a slice has numbers
    return growth
