"""What patterns find in text and paths in JSON and XML, and the rows of tables."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from xml.parsers import expat

from jmespath.exceptions import JMESPathError

from storlab.base.errors import ParseError
from storlab.base.limits import NESTING
from storlab.base.patterns import json_path, pattern
from storlab.base.text import printable
from storlab.base.units import shown
from storlab.tools.readers.numbers import MOST, Number, Row, filled, number_in, plain_text, seconds
from storlab.tools.readers.rules import Reader, Rule, Table, value_group
from storlab.tools.table.columns import UNITS, has_no_figure, named_unit


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


_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_RULE_LINE = re.compile(rb"[-=\s]*")


def said_in(regex: str, text: bytes) -> str:
    match = next(pattern(regex).matches(text), None)
    return "" if match is None else printable((match[value_group(regex) or 0] or b"").decode(errors="replace").strip())


def headings_in(reader: Reader, text: bytes) -> tuple[list[int], list[dict[str, str]]]:
    matches = [] if reader.within is None else list(islice(pattern(reader.within).matches(text), MOST))
    return [match.start() for match in matches], [_groups(match.groupdict()) for match in matches]


def _groups(found: Mapping[Any, bytes | None]) -> dict[str, str]:
    each = ((name.decode() if isinstance(name, bytes) else name, group) for name, group in found.items())
    return {name: (group or b"").decode(errors="replace") for name, group in each}


def by_regex(
    rule: Rule, text: bytes, headings: tuple[list[int], list[dict[str, str]]], source: str
) -> Iterator[Number]:
    assert rule.regex is not None
    at = value_group(rule.regex)
    line, counted = 1, 0
    for match in pattern(rule.regex).matches(text):
        line, counted = line + text.count(b"\n", counted, match.start()), match.start()
        groups = _groups(match.groupdict())
        above = bisect_right(headings[0], match.start())
        words = {**(headings[1][above - 1] if above else {}), **groups}
        written = (match[at] or b"").decode(errors="replace")
        if (name := filled(rule.name, words)) is None or has_no_figure(written):
            continue
        value = number_in(written, name, source, line) * _unit(rule, groups.get("unit", ""), name, source, line)
        if "per" in groups:
            by = number_in(groups["per"], name, source, line)
            if by <= 0:
                continue
            value /= by
        if not math.isfinite(value):
            raise ParseError(f"metric {name}: {value} is not a finite number", source, line)
        t = number_in(groups["t"], name, source, line) if "t" in groups else None
        yield Number(name, words, value, t=t, since=True)


def _unit(rule: Rule, written: str, name: str, source: str, line: int) -> float:
    """What one of it is in the base unit, by the unit that the text has beside it, if any."""
    written = written.strip()
    if not written:
        return rule.factor
    if (unit := named_unit(written)) and UNITS[unit][1] == rule.base:
        return rule.scale * UNITS[unit][0]
    if written in _PREFIXES:
        return rule.factor * _PREFIXES[written]
    raise ParseError(f"metric {name}: {shown(written)} is not a unit of {rule.base} that is known", source, line)


def blocks_of(table: Table, text: bytes, source: str, first: int) -> list[list[Row]]:
    """The rows under each heading."""
    assert table.heading is not None and table.row is not None
    heading, row = pattern(table.heading), pattern(table.row)
    times: tuple[list[int], list[float | None]] = ([], [])
    if table.time is not None:
        matches = list(islice(pattern(table.time).matches(text), MOST))
        times = [match.start() for match in matches], [seconds(match[1].decode(errors="replace")) for match in matches]
    blocks: list[list[Row]] = []
    columns: list[tuple[str, int]] | None = None
    at = 0
    for number, line in enumerate(text.split(b"\n"), start=first):
        begin, at = at, at + len(line) + 1
        if (found := next(heading.matches(line), None)) is not None:
            columns = _fields(table, found[1].decode(errors="replace"), found.start(1))
            blocks.append([])
        elif columns is not None and (found := next(row.matches(line), None)) is not None:
            fields = _fields(table, found[1].decode(errors="replace"), found.start(1))
            before = bisect_right(times[0], begin + len(line))
            t = times[1][before - 1] if before else None
            blocks[-1].append(Row(_under(columns, fields, source, number), t, number))
        elif _RULE_LINE.fullmatch(line) is None or not line.strip():
            columns = columns if blocks and not blocks[-1] else None
    return [block for block in blocks if block]


def _fields(table: Table, text: str, begin: int) -> list[tuple[str, int]]:
    """The fields of a line, each with where it ends."""
    if table.separator:
        return [(each.strip(), 0) for each in text.split(table.separator)]
    return [(match[0], begin + match.end()) for match in re.finditer(r"\S+", text)]


def _under(
    columns: Sequence[tuple[str, int]], fields: Sequence[tuple[str, int]], source: str, line: int
) -> dict[str, str]:
    """Each field by the column under which it stands; a second column of one name is ``read 2``.

    Where columns are empty, what is in others ends where their headings end, or a sign beside it.
    """
    names: list[str] = []
    for name, _ in columns:
        name = name.rstrip(":")
        names.append(name if name not in names else f"{name} {sum(each.split(' ')[0] == name for each in names) + 1}")
    if len(fields) == len(columns):
        return dict(zip(names, (text for text, _ in fields), strict=True))
    found: dict[str, str] = {}
    for text, end in fields:
        near = [name for name, (_, at) in zip(names, columns, strict=True) if abs(at - end) <= 1]
        if len(near) != 1 or near[0] in found:
            raise ParseError(f"{shown(text)} stands under no column of the table's heading", source, line)
        found[near[0]] = text
    return found
