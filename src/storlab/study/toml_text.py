"""Bytes as TOML, or an error that says what to write instead, in more words than a parser has.

Where a key stands: ``tomllib`` gives values without positions, so the file's syntax tree is read once more, by
tree-sitter, and only when there is an error to report.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storlab.base.errors import Problem, StudyError
from storlab.base.limits import DOTS, NESTING, STUDY_TEXT
from storlab.base.text import printable
from storlab.base.units import shown

if TYPE_CHECKING:
    from tree_sitter import Node


_TOO_DEEP = f"this is nested too deeply for a study: at most {NESTING} tables and lists within each other"

_HINTS = {
    "illegal character '\\n'": "; a text in quotes ends on the line where it begins",
    "unescaped '\\' in a string": "; write two, or the text in single quotes: 'a\\b'",
}

_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_ASSIGNMENT = re.compile(r"\s*[\w.\"'-][\w.\"' -]*=")
_UNQUOTED = re.compile(r"(?:^|[=,\[{])\s*([A-Za-z/.+±-][^\s,\]}\"'#]*|\d[\d._]*[A-Za-z%][^\s,\]}\"'#]*)")


def read_toml(data: bytes, file: str) -> tuple[str, dict[str, Any]]:
    """The text and its tree. Raises ``StudyError``."""

    def refused(message: str, line: int | None = None) -> StudyError:
        return StudyError(file, [Problem("", message, line)])

    if len(data) > STUDY_TEXT:
        raise refused(f"more than {STUDY_TEXT // 1024**2} MiB is too long for a study; is this the right file?")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise refused("this is UTF-16; save it as UTF-8", 1)
    try:
        text = data.decode("utf-8-sig")  # some editors put a byte order mark first, which TOML 1.0 does not know
    except UnicodeDecodeError as error:
        raise refused("this is not UTF-8 text", data[: error.start].count(b"\n") + 1) from None
    for number, written in enumerate(text.split("\n"), start=1):
        if written.count(".") > DOTS:  # tomllib takes time for a key that grows with the square of its parts
            raise refused(f"a line with more than {DOTS:,} dots is too long for a study", number)
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise refused(_TOO_DEEP) from None
    except ValueError as error:  # a plain one for numbers of thousands of digits
        reason, line, column = _place(str(error), text)
        raise refused(printable(f"this is not TOML: {reason}{_hint(reason, text, line, column)}"), line) from None
    if (deep := _deeper(tree)) is not None:
        raise refused(f"{deep}: {_TOO_DEEP}", line_of((deep,), positions(text)))
    return text, tree


def _deeper(tree: dict[str, Any]) -> str | None:
    """The first key of all under which more tables and lists are within each other than may be."""
    for key, value in tree.items():
        level, depth = [value], 1
        while level := [each for each in level if isinstance(each, dict | list)]:
            if depth == NESTING:
                return key
            level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
            depth += 1
    return None


def _place(message: str, text: str) -> tuple[str, int | None, int]:
    """(reason, line, column) of what tomllib says; the place of a missing end is the last line."""
    where = _WHERE.search(message)
    if where is None:
        huge = "digit" in message
        return ("a number is too large" if huge else message), None, 0
    reason = message[: where.start()]
    reason = re.sub(r"\('(.*?)',?\)", lambda found: found[1].replace("', '", "."), reason[:1].lower() + reason[1:])
    if where[1] is not None:
        return reason, int(where[1]), int(where[2])
    return f"{reason} at the end of the file", len(text.rstrip().splitlines()) or 1, 0


def _hint(reason: str, text: str, line: int | None, column: int) -> str:
    lines = text.splitlines()
    written = lines[line - 1] if line is not None and line <= len(lines) else ""
    before, rest = written[: column - 1], written[max(column - 1, 0) :]
    if _inside_braces(lines, line, before):
        if not rest.strip() or rest.lstrip().startswith("#") or not before.strip():
            return "; a table in braces { … } must be on one line: write a [table] with one key per line instead"
        if rest.lstrip().startswith("}") and before.rstrip().endswith(","):
            return "; there must be no comma before the closing brace"
    if "overwrite" in reason or "twice" in reason or "duplicate" in reason:
        return "; the same key or [table] is defined already"
    if "immutable" in reason or "mutate" in reason:
        return "; what is written in braces can't be added to further down"
    if (hint := next((hint for what, hint in _HINTS.items() if what in reason), None)) is not None:
        return hint
    if reason == "invalid statement" and rest.lstrip().startswith(("//", ";", "--", "/*")):
        return "; a comment begins with #"
    if re.match(r"\s*(True|False|None|yes|no|on|off)\b", rest):
        return "; write true or false"
    if ":" in written and "=" not in written:
        return "; TOML writes key = value, not key: value"
    slip = next((word for word in _UNQUOTED.finditer(written) if word.end() >= column), None)
    if slip is not None and _ASSIGNMENT.match(written) and slip[1] not in ("true", "false", "inf", "nan"):
        return f"; text must be in quotes: {shown(slip[1])}"
    if reason == "unclosed array":
        return "; is a comma or a bracket missing?"
    return "; write key = value" if reason.startswith("expected '=' after a key") else ""


def _inside_braces(lines: list[str], line: int | None, before: str) -> bool:
    """Whether a brace that opened on this line or the one before is still open."""
    if line is None:
        return False
    opened = before
    if not before.strip() and line >= 2:
        opened = lines[line - 2]
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'[^']*'|#.*", "", opened)
    return bare.count("{") > bare.count("}")


Path = tuple[str | int, ...]


def positions(text: str) -> dict[Path, int]:
    """Every table, key and array element of a valid TOML document → its line, from 1."""
    import tree_sitter_toml
    from tree_sitter import Language, Parser

    tree = Parser(Language(tree_sitter_toml.language())).parse(text.encode())
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}  # elements so far, of each array of tables
    for node in tree.root_node.named_children:
        match node.type:
            case "pair":
                _pair(node, (), found)
            case "table" | "table_array_element":
                path = _in_last_elements(_key(node.named_children[0]), counts, node.type == "table")
                if node.type == "table_array_element":
                    index = counts.get(path, 0)
                    counts[path] = index + 1
                    path = (*path, index)
                _note(path, node, found)
                for pair in node.named_children[1:]:
                    if pair.type == "pair":
                        _pair(pair, path, found)
    return found


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """The line of the path, or of the nearest thing around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def as_written(path: Path, lines: Mapping[Path, int]) -> Path:
    """``a[0].b`` → ``a.b`` where the file has a table rather than a list with one: ``[a]`` and not ``[[a]]``."""
    for place, part in enumerate(path):
        above = path[:place]
        is_table = any(len(found) > len(above) and found[: len(above)] == above for found in lines)
        if part == 0 and (*above, 0) not in lines and is_table:
            return as_written((*above, *path[place + 1 :]), lines)
    return path


def _pair(node: Node, prefix: Path, found: dict[Path, int]) -> None:
    path = (*prefix, *_key(node.named_children[0]))
    _note(path, node, found)
    _value(node.named_children[-1], path, found)


def _value(node: Node, path: Path, found: dict[Path, int]) -> None:
    if node.type == "inline_table":
        for pair in node.named_children:
            if pair.type == "pair":
                _pair(pair, path, found)
    elif node.type == "array":
        elements = [child for child in node.named_children if child.type != "comment"]
        for index, element in enumerate(elements):
            found[(*path, index)] = _line(element)
            _value(element, (*path, index), found)


def _in_last_elements(path: Path, counts: Mapping[Path, int], itself: bool) -> Path:
    """``a.b`` → ``a[2].b`` where ``a`` is an array of tables: a header means its last element so far."""
    real: Path = ()
    for position, part in enumerate(path, start=1):
        real = (*real, part)
        if real in counts and (itself or position < len(path)):
            real = (*real, counts[real] - 1)
    return real


def _key(node: Node) -> Path:
    return key_path((node.text or b"").decode())


def key_path(text: str) -> tuple[str, ...]:
    """A bare, quoted or dotted key as a path; TOML itself reads the quoted ones. Empty for what is none."""
    try:
        tree: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return ()
    parts: list[str] = []
    while isinstance(tree, dict) and len(tree) == 1:
        ((name, tree),) = tree.items()
        parts.append(name)
    return tuple(parts) if tree == 0 else ()


def _note(path: Path, node: Node, found: dict[Path, int]) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], _line(node))


def _line(node: Node) -> int:
    return node.start_point[0] + 1
