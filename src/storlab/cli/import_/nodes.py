"""Of which node each file of a folder is, and of which test: by the names of files and folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import UserError
from storlab.grouping import grouped
from storlab.text import printable
from storlab.tools.imported import HOST, NODE_NAME

_FOLDER, _TEST = "folder", "test"
_LONGEST = 63


@dataclass(frozen=True)
class NodeFile:
    """A file, the node that it is of, and the levels that the rest of its path says."""

    path: Path
    node: str
    levels: Mapping[str, str]


def files_by_node(folder: Path, files: Sequence[Path], names: Sequence[str]) -> list[NodeFile]:
    """Those of the nodes with these names, and of their host; without names those of all nodes.

    ``FOLDER/NODE/TEST`` and ``FOLDER/NODE``; with names, the node may stand anywhere in the path. Raises ``UserError``
    where that can't be told, or a test lacks the file of a node.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: name the folder that has the files of all nodes, each in a file or folder of its name"
        )
    parts = {path: _parts(path.relative_to(folder)) for path in files}
    nodes = list(names) or [name for name in dict.fromkeys(each[0] for each in parts.values()) if name != HOST]
    for name in nodes:
        if not re.fullmatch(NODE_NAME, name) or name == HOST:
            raise UserError(
                f"--nodes: {printable(name)!r} can't be a node: write letters, digits, - _ and ., but not {HOST}"
            )
    found: dict[tuple[tuple[str, ...], str], Path] = {}
    for path, each in parts.items():
        at = [place for place, part in enumerate(each) if part in (*nodes, HOST)]
        if len(at) > 1 and names:
            raise UserError(f"{path} is of two nodes by its path, {each[at[0]]} and {each[at[1]]}: name one of them")
        if at:
            test = (*each[: at[0]], *each[at[0] + 1 :])
            other = found.setdefault((test, each[at[0]]), path)
            if other != path:
                raise UserError(f"{other} and {path} are both of node {each[at[0]]} in the same test: leave one out")
    _refuse_missing(folder, found, nodes)
    levels = _levels({test for test, _ in found})
    return [NodeFile(path, node, levels[test]) for (test, node), path in found.items()]


def _parts(path: Path) -> tuple[str, ...]:
    return (*path.parts[:-1], path.stem)


def _refuse_missing(folder: Path, found: Iterable[tuple[tuple[str, ...], str]], nodes: Sequence[str]) -> None:
    tests = grouped(found)
    if not any(node in nodes for held in tests.values() for node in held):
        raise UserError(f"{folder}: no file in it is of a node: {', '.join(nodes) or 'say which there are by --nodes'}")
    for test, held in tests.items():
        if missing := [node for node in nodes if node not in held]:
            said = f" for {printable('/'.join(test))}" if test else ""
            raise UserError(
                f"{folder}: node {missing[0]} has no file{said}, which {held[0]} has: add it, or say which nodes there "
                "are: --nodes NAME,NAME"
            )


def _levels(tests: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], dict[str, str]]:
    """What differs: the test's own name, and the folders that it is in."""
    every = {test: {_FOLDER: "/".join(test[:-1]), _TEST: test[-1] if test else ""} for test in tests}
    differing = [name for name in (_FOLDER, _TEST) if len({each[name] for each in every.values()}) > 1]
    return {
        test: {name: printable(each[name])[-_LONGEST:] or "." for name in differing} for test, each in every.items()
    }
