"""fio's output, from elsewhere: JSON, JSON+, terse lines of versions 3 to 5, or for people, with the logs beside it.

Set-ups are told apart by the options of the jobs, as fio prints them, and never by file names. Jobs that ran one after
another (``stonewall``) are trials of their own; those that ran at once are one. The JSON says when it was written, so
repeats are put in the order of their times; terse lines don't, and are left in their order.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

from storlab.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.text import printable
from storlab.tools.fio.beside import logs_of, with_logs
from storlab.tools.fio.document import Document, NoJson, read_documents
from storlab.tools.fio.finding import KEY
from storlab.tools.fio.normal.documents import read_normal
from storlab.tools.fio.parts import json_parts, normal_parts, said_of_copies, said_of_status, same_run
from storlab.tools.fio.status import last_of_each_run
from storlab.tools.fio.terse import LINE, TerseReport, read_terse, terse_values
from storlab.tools.fio.traits import said_of_jobs
from storlab.tools.imported import HOST_LOAD
from storlab.tools.importer import Importer, Part
from storlab.tools.load_averages import LOADS, HostLoad, parse_host_loads
from storlab.tools.passed_on import labels_of, peeled
from storlab.tools.signatures import is_of

_BOM = b"\xef\xbb\xbf"
_GROUPS = b"(groupid="  # bytes.find of what begins with ": " takes ten times as long in JSON
_IN_THE_MIDST = "fio's output is in the midst of other text"
_ONLY_ITS_LINES = "leave only its lines, from { to }"
_MOST = 5  # lines that are named
_VERSION_2 = re.compile(rb"^2;[^;\n]*;\d+;\d+;(\d+;){4}", re.MULTILINE)
_CUT = re.compile(r"[2-9](?:;fio-|;?f?i?o?\Z)")  # the beginning of a terse line, or of that
_WANTED = "run it with --output-format=json+ (or normal,json+ for both)"


class FioImporter(Importer):
    """A trial for each group of jobs that ran at once."""

    kind: ClassVar[str] = "fio"
    raw_name: ClassVar[str] = "fio-output"
    primary: ClassVar[tuple[str, ...]] = ("bandwidth",)
    unknown: ClassVar[str] = "on which machine it was, what else that did, nor what happened between the runs"
    repeats: ClassVar[bool] = True
    clients: ClassVar[bool] = True

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return _read(text.removeprefix(_BOM), source)

    def beside(self, text: bytes, names: Collection[str]) -> Sequence[str]:
        if not any(name.endswith(".log") for name in names):
            return ()  # as in most folders, where the text need not be parsed for it
        try:
            return logs_of(_known(text.removeprefix(_BOM), "").documents, names)
        except ParseError:
            return ()

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        return with_logs(parts, folder)


@dataclass(frozen=True)
class _Text:
    """A file, or what is left of it without what something else put before its lines."""

    text: bytes
    documents: list[Document]
    broken: list[NoJson]

    @property
    def unread(self) -> list[int]:
        """In which lines documents stand that could not be told from the text around them."""
        keys, line, at = list[int](), 1, 0
        for match in islice(KEY.finditer(self.text), len(self.documents) + len(self.broken) + _MOST):
            line, at = line + self.text.count(b"\n", at, match.start()), match.start()
            keys.append(line)
        starts = [each.line for each in self.documents] + [error.begins for error in self.broken]
        starts.sort()
        spans = pairwise([0, *keys])
        return [key for before, key in spans if bisect_right(starts, key) == bisect_right(starts, before)][:_MOST]


def _known(text: bytes, source: str) -> _Text:
    """The first form of the text that holds results, and nothing of fio's JSON that could not be read.

    Of its output for people the last form: a job may have any name, so its line is known behind anything.
    """
    forms = list[_Text]()
    for each in peeled(text):
        forms.append(_Text(each, *read_documents(each, source)))
        documents, keys = len(forms[-1].documents), len(KEY.findall(each))
        if documents >= keys and (documents or LINE.search(each)):
            return forms[-1]
    return max(reversed(forms), key=lambda form: (len(form.documents), _GROUPS in form.text))


def _read(text: bytes, source: str) -> Sequence[Part]:
    found = _known(text, source)
    text, documents, broken = found.text, found.documents, found.broken
    terse = LINE.search(text) is not None
    if documents:
        said = ["its terse lines are left out: the JSON counts"] if terse else []
        said += [f"line {line}: {_IN_THE_MIDST}, and left out" for line in found.unread]
        return _warned(json_parts(documents, broken, source), [*said, *_of_people(text, documents, source)])
    if terse:
        return _terse_parts(text, source)
    groups = text.find(_GROUPS)
    if lines := found.unread or ([text.count(b"\n", 0, groups) + 1] if groups >= 0 and labels_of(text) else []):
        labels = labels_of(text)
        remedy = f"give each of these a file of its own: {', '.join(labels)}" if labels else _ONLY_ITS_LINES
        raise ParseError(f"{_IN_THE_MIDST}: {remedy}", source, lines[0])
    if groups >= 0 and (runs := _runs(text, source)):
        return normal_parts(runs, source)
    raise broken[0] if broken else _refusal(text, source)


def _runs(text: bytes, source: str) -> list[Document]:

    return read_normal(text, source)


def _of_people(text: bytes, documents: Sequence[Document], source: str) -> list[str]:
    """Of a file in which the JSON counts: which runs are in it for people only."""
    try:
        runs = _runs(text, source) if _GROUPS in text else []
    except ParseError as error:
        return [f"line {error.line}: fio's output for people is left out: the JSON counts"]
    others = [each for each in runs if not any(same_run(each, document) for document in documents)]
    return [f"line {each.line}: a run in fio's output for people is left out: the JSON counts" for each in others]


def _refusal(text: bytes, source: str) -> ParseError:
    """Why a file holds nothing that can be read: it ended before it began, or is in a form that says too little."""
    if match := _VERSION_2.search(text):
        line = text.count(b"\n", 0, match.start()) + 1
        return ParseError(f"fio's terse output of version 2 isn't read: {_WANTED}", source, line)
    lines = [] if b"\0" in text else text.decode(errors="replace").splitlines()  # of a program, lines may be anything
    said = next((line for line in lines if line.startswith("fio:")), "")
    message = "holds no result of fio, neither JSON nor terse lines"
    return ParseError(f"{message}; it says: {printable(said)}" if said else message, source, 1)


def _terse_parts(text: bytes, source: str) -> list[Part]:
    """A part for each terse line that ends a run. The last is left out where the file ends within it."""
    lines = [line.rstrip("\r") for line in text.decode(errors="replace").split("\n")]
    numbers = [number for number, line in enumerate(lines, start=1) if LINE.match(line.encode())]
    warnings = []
    if _CUT.match(lines[-1]) is not None:
        numbers = [number for number in numbers if number < len(lines)]
        if not numbers:
            raise ParseError("fio's terse line was cut off: nothing is whole", source, len(lines))
        warnings.append(f"line {len(lines)}: the terse line was cut off, and left out")
    reports = [read_terse(lines[number - 1], source, number) for number in numbers]
    runs = last_of_each_run(reports)
    if len(reports) > len(runs):
        warnings.append(said_of_status(len(reports) - len(runs)))
    once: dict[str, TerseReport] = {}
    for at in runs:
        once.setdefault(lines[numbers[at] - 1], reports[at])
    if len(runs) > len(once):
        warnings.append(said_of_copies(len(runs) - len(once)))
    if len(once) > 1:
        warnings.append("terse lines don't say which jobs ran at once: each is taken to be a run of its own")
    said = said_of_jobs(lines)
    return _warned([_terse_part(report, said) for report in once.values()], warnings)


def _terse_part(report: TerseReport, said: Mapping[str, Mapping[str, str]]) -> Part:
    traits = {"job": printable(report.name), **said.get(report.name, {})}
    facts: dict[str, object] = {"version": report.version}
    if report.error or not report.directions:
        reason = f"fio ended with errno {report.error}" if report.error else "fio read and wrote nothing"
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason=reason)
    measured = Measurements(metric_frame(terse_values(report)), facts=facts, declared=report.declared)
    return Part(measured, traits=traits)


def _warned(parts: list[Part], warnings: Sequence[str]) -> list[Part]:
    """The same parts; what is said of the whole file is with the first."""
    first = parts[0].measured
    return [replace(parts[0], found=replace(first, warnings=(*warnings, *first.warnings))), *parts[1:]]


# Results as lab notes keep them: fio's output of each machine that took part, and what ``w`` printed on their host.


class FalconImporter(FioImporter):
    """A trial for each moment: nodes' files of the same name, and the host's, are of one."""

    kind: ClassVar[str] = "falcon"
    raw_name: ClassVar[str] = "output"
    unknown: ClassVar[str] = "on which machines it was, what else these did, nor what happened between the runs"
    repeats: ClassVar[bool] = False
    by_node: ClassVar[bool] = True

    def knows(self, text: bytes) -> bool:
        return is_of(FioImporter.kind, text) or b"load average" in text

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if not is_of(FioImporter.kind, text) and (loads := parse_host_loads(text.decode(errors="replace"), source)):
            return [_load(each) for each in loads]
        return super().read(text, source, options)


def _load(host: HostLoad) -> Part:
    values = (spec.value(value) for spec, value in zip(LOADS, host.averages, strict=True))
    return Part(Measurements(metric_frame(values), facts=host.facts, declared=LOADS), source=HOST_LOAD)
