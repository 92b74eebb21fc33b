"""The runs in a tool's output, as its reader finds them: values, samples of series, settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import fmean
from xml.parsers import expat

import orjson

from storlab.base.errors import ParseError
from storlab.base.patterns import PatternError, pattern
from storlab.base.text import grouped, printable
from storlab.base.units import shown
from storlab.tools.readers.lines import (
    blocks_of,
    by_json,
    by_regex,
    headings_in,
    objects_of,
    plain,
    said_in,
    search,
    xml_tree,
)
from storlab.tools.readers.numbers import DAY, MOST, PICKED, Number, Row, filled, number_in, plain_text
from storlab.tools.readers.rules import Reader, Rule
from storlab.tools.table.columns import has_no_figure

_MOST_METRICS = 10_000


@dataclass(frozen=True)
class Got:
    """A metric of a run: its rule, and the words in its name."""

    rule: Rule
    name: str
    words: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Run:
    """One run. ``series``: name → (s since the start, value). ``line``: on which it begins, from 1."""

    values: Sequence[Got]
    series: Mapping[str, Sequence[tuple[float, float]]]
    settings: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    line: int = 1
    guessed: int = 0  # of the values, those that are means of samples, as the tool's own are missing


def runs_of(reader: Reader, text: bytes, source: str) -> list[Run]:
    """Raises ``ParseError`` where there is nothing that it reads, or anything that contradicts it."""
    try:
        found = list(_of_text(reader, text, source) if reader.format == "text" else _of_tree(reader, text, source))
    except PatternError as error:
        raise ParseError(f"a pattern of the reader: {error}", source) from None
    found = [run for run in found if run.values]
    if not found:
        raise ParseError(f"has no figure of {reader.title}: it is cut off, or the output of something else", source)
    return found


def _of_text(reader: Reader, text: bytes, source: str) -> Iterator[Run]:
    starts = [0]
    if reader.each is not None:
        starts = [match.start() for match in islice(pattern(reader.each).matches(text), MOST)] or [0]
    head = text[: starts[0]]  # what the tool says before the first of them
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        own = text[begin:end]
        headings = headings_in(reader, own)
        found_in = {name: said_in(regex, own) or said_in(regex, head) for name, regex in reader.settings.items()}
        settings = {name: said for name, said in found_in.items() if said}
        line = text.count(b"\n", 0, begin) + 1
        blocks = {name: blocks_of(table, own, source, line) for name, table in reader.tables.items()}
        tables, warnings = _kept(reader, blocks)
        found = [
            (rule, by_regex(rule, own, headings, source) if rule.regex else _by_column(rule, reader, tables, source))
            for rule in reader.metrics
        ]
        yield _run(found, settings, warnings, source, line)


def _of_tree(reader: Reader, text: bytes, source: str) -> Iterator[Run]:
    try:
        tree = orjson.loads(text) if reader.format == "json" else xml_tree(text)
    except (ValueError, LookupError, RecursionError, expat.ExpatError) as error:
        raise ParseError(f"is not {reader.format.upper()}: {printable(str(error))}", source) from None
    settings = {name: said for name, path in reader.settings.items() if (said := plain(search(path, tree, source)[:1]))}
    for own in search(reader.each, tree, source) if reader.each is not None else [tree]:
        tables, warnings = _kept(
            reader, {name: objects_of(table, own, source) for name, table in reader.tables.items()}
        )
        found = [
            (rule, by_json(rule, own, source) if rule.json_path else _by_column(rule, reader, tables, source))
            for rule in reader.metrics
        ]
        yield _run(found, settings, warnings, source)


def _run(
    found: Iterable[tuple[Rule, Iterable[Number]]],
    settings: Mapping[str, str],
    said: Sequence[str],
    source: str,
    line: int = 1,
) -> Run:
    values: dict[str, Got] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    only_sampled: dict[str, tuple[Rule, Mapping[str, str]]] = {}
    for rule, numbers in found:
        for name, each in grouped((number.name, number) for number in islice(numbers, MOST)).items():
            timed = [(number.t, number.value) for number in each if number.t is not None]
            if len(timed) > 1:
                samples = _since_the_start(timed, each[0].since)
                if all(one < other for (one, _), (other, _) in pairwise(samples)):
                    series.setdefault(name, samples)
                elif rule.pick == "none":
                    raise ParseError(f"metric {name}: its times go back: give each run a file of its own", source)
                if rule.pick == "none":
                    only_sampled[name] = rule, each[0].words
            if rule.pick != "none" and name not in values and (value := _picked(rule, each, source)) is not None:
                values[name] = Got(rule, name, each[0].words, value)
        if len(values) > _MOST_METRICS:
            raise ParseError(f"there are more than {_MOST_METRICS} metrics, so their names are none", source)
    lost = [name for name in only_sampled if name not in values]
    for name in lost:
        rule, words = only_sampled[name]
        values[name] = Got(rule, name, words, fmean(value for _, value in series[name]))
    ended = f"its end is missing, so this is the mean of what came before: {', '.join(lost)}"
    warnings = [*said, ended] if lost else said
    first = sorted(values.values(), key=lambda got: got.value == 0)  # a report begins with something that was at work
    return Run(first, series, settings, tuple(warnings), line, len(lost))


def _picked(rule: Rule, numbers: Sequence[Number], source: str) -> float | None:
    if rule.pick == "only" and len(numbers) > 1:
        raise ParseError(
            f"metric {numbers[0].name}: there are {len(numbers)} numbers of it, so it is the output of several runs: "
            "give each a file of its own",
            source,
        )
    if rule.weight is not None:
        weight = math.fsum(number.weight for number in numbers)
        value = math.fsum(number.value * number.weight for number in numbers) / weight if weight > 0 else None
    else:
        value = PICKED[rule.pick]([number.value for number in numbers])
    return None if value is None or (rule.nonzero and value == 0) else value


def _since_the_start(timed: list[tuple[float, float]], since: bool) -> list[tuple[float, float]]:
    """A time of day begins again at midnight; what was counted until the first of them began as long before it."""
    if since:
        return timed
    times, days = [timed[0][0]], 0.0
    for t, _ in timed[1:]:
        days += DAY if t + days < times[-1] - DAY / 2 else 0.0
        times.append(t + days)
    start = times[0] - max(times[1] - times[0], 0.0)
    return [(max(t - start, 0.0), value) for t, (_, value) in zip(times, timed, strict=True)]


def _kept(reader: Reader, blocks: Mapping[str, Sequence[Sequence[Row]]]) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of each table, and what is to be said of those that are left out."""
    rows: dict[str, list[Row]] = {}
    said: dict[str, None] = {}
    for name, each in blocks.items():
        alike = list(
            grouped((tuple(block[0].fields), block) for block in each).values()
        )  # a report may be several tables
        if (why := reader.tables[name].drop_first) and (most := max(map(len, alike), default=0)) > 1:
            said[f"the first of {most} reports is left out: {why}"] = None
            alike = [of[1:] if len(of) > 1 else of for of in alike]
        rows[name] = [row for of in alike for block in of for row in block]
    return rows, list(said)


def _by_column(rule: Rule, reader: Reader, tables: Mapping[str, Sequence[Row]], source: str) -> Iterator[Number]:
    table = rule.table or next(iter(tables))
    for row in tables[table]:
        written, words = (
            row.fields.get(rule.column or ""),
            {name: plain_text(value) for name, value in row.fields.items()},
        )
        if written is None or has_no_figure(plain_text(written)) or (name := filled(rule.name, words)) is None:
            continue
        weight = 1.0
        if rule.weight is not None:
            weight = number_in(plain_text(row.fields.get(rule.weight, "0")), name, source, row.line)
        value = number_in(plain_text(written), name, source, row.line) * rule.factor
        if weight == 0:
            continue
        if weight < 0 or not math.isfinite(value):
            raise ParseError(f"metric {name}: {shown(plain_text(written))} can't be one", source, row.line)
        yield Number(name, words, value, weight, row.t)
