"""JSON and XML: what paths find in them, and objects as rows of tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.parsers import expat

from jmespath.exceptions import JMESPathError

from storlab.base.errors import ParseError
from storlab.base.limits import NESTING
from storlab.base.patterns import json_path
from storlab.base.text import printable
from storlab.base.units import shown
from storlab.tools.readers.numbers import Number, Row, number_in, plain_text, seconds
from storlab.tools.readers.rules import Rule, Table
from storlab.tools.table.columns import has_no_figure


def search(path: str, tree: Any, source: str) -> list[Any]:
    try:
        found = json_path(path).search(tree)
    except (JMESPathError, RecursionError) as error:
        raise ParseError(
            f"{shown(path)}: {(str(error).splitlines() or ['it is nested too deeply'])[0]}", source
        ) from None
    return found if isinstance(found, list) else [] if found is None else [found]


def plain(found: Sequence[Any]) -> str:
    return printable(plain_text(found[0]).strip()) if found else ""


def by_json(rule: Rule, tree: Any, source: str) -> Iterator[Number]:
    assert rule.json_path is not None
    by = 1.0
    if rule.per is not None:
        divisors = [number_in(plain_text(each), rule.name, source) for each in search(rule.per, tree, source)]
        if len(divisors) != 1 or divisors[0] <= 0:
            return
        by = divisors[0]
    for each in search(rule.json_path, tree, source):
        if each is None or has_no_figure(plain_text(each)):
            if isinstance(each, dict | list | bool):
                raise ParseError(
                    f"metric {rule.name}: {shown(rule.json_path)} gives something else than numbers", source
                )
            continue
        value = number_in(plain_text(each), rule.name, source) * rule.factor / by
        if not math.isfinite(value):
            raise ParseError(f"metric {rule.name}: {value} is not a finite number", source)
        yield Number(rule.name, {}, value)


def objects_of(table: Table, tree: Any, source: str) -> list[list[Row]]:
    assert table.json_path is not None
    blocks = []
    for each in search(table.json_path, tree, source):
        when = search(table.time, each, source) if table.time is not None else []
        t = seconds(when) if when else None
        blocks.append([Row(row, t) for row in search(table.rows, each, source) if isinstance(row, dict)])
    return [block for block in blocks if block]


def xml_tree(text: bytes) -> dict[str, Any]:
    """Each element as an object that has a list of each kind of element in it, or as its text. Raises ``ValueError``
    or ``ExpatError``, also where there are entities, which could double what others have.
    """
    top: dict[str, Any] = {}
    open_: list[tuple[dict[str, Any], list[str]]] = [(top, [])]

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(open_) > NESTING:
            raise ValueError("its elements are nested too deeply")
        open_.append(({f"@{key}": value for key, value in attributes.items()}, []))

    def end(name: str) -> None:
        own, words = open_.pop()
        open_[-1][0].setdefault(name, []).append(own or "".join(words).strip())

    def refuse(*_: Any) -> None:
        raise ValueError("it has a document type, which is not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = lambda words: open_[-1][1].append(words)
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(text, True)
    return top
