"""Where in a TOML file a key stands, for error messages.

``tomllib`` gives values without positions, so the file's syntax tree is read once more, by tree-sitter, and only
when there is an error to report.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

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
    """A bare, quoted or dotted key as a path; TOML itself reads the quoted ones."""
    text = (node.text or b"").decode()
    value: object = tomllib.loads(f"{text} = 0")
    path: list[str | int] = []
    while isinstance(value, dict):
        (name,) = value
        path.append(name)
        value = value[name]
    return tuple(path)


def _note(path: Path, node: Node, found: dict[Path, int]) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], _line(node))


def _line(node: Node) -> int:
    return node.start_point[0] + 1
