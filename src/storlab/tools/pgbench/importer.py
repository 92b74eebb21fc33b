"""pgbench's summaries with their progress, and its logs of transactions or intervals.

A log is a run by itself, with those of the other threads that lie beside it: each thread writes its own, and one alone
has a part of the transactions. Beside a summary, the logs of a run are read with it where they have as many.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from storlab.errors import ParseError
from storlab.measurements import Measurements
from storlab.reading import read_file
from storlab.text import first
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import read_passed_on, under_headings
from storlab.tools.pgbench.log import Log, is_log, read_log
from storlab.tools.pgbench.results import FACT, measured, measured_by_log
from storlab.tools.pgbench.summary import BEGIN, Summary, read_summaries

_TRAITS = (
    *("transaction type", "scaling factor", "query mode", "clients", "threads", "tries", "latency limit"),
    *("duration", "transactions per client", "partitioning", "partitions", "scripts", "weights", "time to connect"),
)
_NAME = re.compile(r"(?P<run>.+?\.\d{1,9})(?:\.\d{1,6})?", re.DOTALL)
_USUAL = re.compile(r"pgbench_log\.\d{1,9}(\.\d{1,6})?")
_BINARY = b"\0"


class PgbenchImporter(Importer):
    """Several runs alike in one file are rounds."""

    kind: ClassVar[str] = "pgbench"
    raw_name: ClassVar[str] = "pgbench.txt"
    primary: ClassVar[tuple[str, ...]] = ("tps", "latency.mean")
    unknown: ClassVar[str] = "on which machine and storage the server ran, with which settings, nor what ran beside"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if is_log(text[:4096]):
            return [Part(measured_by_log(_log([text], source)))]
        if _BINARY in text:
            raise ParseError("is no output of pgbench: neither a summary nor a log", source)
        return read_passed_on(text, lambda shown: _parts(shown, source), BEGIN)

    def beside_named(self, name: str, text: bytes, names: Collection[str]) -> Sequence[str]:
        return _logs_beside(name, names, of_log=is_log(text[:4096]))

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        if len(parts) != 1:
            return parts
        path, of_log = Path(source), FACT in parts[0].measured.facts
        names = sorted(each.name for each in folder.iterdir() if each.is_file() and each.name != path.name)
        kept = path.name == self.raw_name  # in a run, all that lie beside it are its own
        found = names if kept else _logs_beside(path.name, names, of_log=of_log)
        texts = {name: read_file(folder / name) for name in found}
        logs = [text for text in texts.values() if is_log(text[:4096])]
        others = [name for name, text in texts.items() if not (kept or is_log(text[:4096]))]
        (part,) = parts
        if logs:
            own = read_file(path)
            part = Part(measured_by_log(_log([own, *logs], source))) if of_log else _with_log(part, own, logs, source)
        said = f"beside it, {first(others)} is no log as pgbench writes it, and left out"
        return [_warned(part, said)] if others else [part]


def _logs_beside(name: str, names: Collection[str], *, of_log: bool) -> list[str]:
    """Of a log, those of the run's other threads; of a summary, those of the only run whose logs are there."""
    if of_log:
        own = _NAME.fullmatch(name)
        return [] if own is None else [each for each in names if _run_of(each) == own["run"]]
    logs = [each for each in names if _USUAL.fullmatch(each)]
    return logs if len({_run_of(each) for each in logs}) == 1 else []


def _run_of(name: str) -> str:
    """The name of a log without the number of its thread: ``pgbench_log.71`` of ``pgbench_log.71.1``."""
    match = _NAME.fullmatch(name)
    return "" if match is None else match["run"]


def _log(texts: Sequence[bytes], source: str) -> Log:
    log = read_log(texts)
    if log is None:
        raise ParseError("is a log of pgbench without a transaction that was done", source)
    return log


def _with_log(part: Part, text: bytes, logs: Sequence[bytes], source: str) -> Part:
    (run,) = read_passed_on(text, lambda shown: _summaries(shown, source), BEGIN)
    log, done = read_log(logs), run.numbers.get("transactions")
    if log is None or not run.whole:
        return part
    if log.count != done:
        said = (
            f"the logs of pgbench that lie beside it have {log.count} transactions and not its {done:.0f}: they are "
            "left out"
        )
        return _warned(part, said)
    return replace(part, found=measured(run, log))


def _warned(part: Part, said: str) -> Part:
    return replace(part, found=replace(part.measured, warnings=(*part.measured.warnings, said)))


def _parts(text: bytes, source: str) -> Sequence[Part]:
    return under_headings(text, [(run.line, _part(run)) for run in _summaries(text, source)])


def _summaries(text: bytes, source: str) -> list[Summary]:
    return read_summaries(text.decode(errors="replace"), source)


def _part(run: Summary) -> Part:
    """A trial. One in which no transaction was done, or whose summary is damaged, failed."""
    traits = {name: str(run.facts[name]) for name in _TRAITS if name in run.facts}
    reason = ""
    if run.numbers.get("transactions") == 0:
        reason = "pgbench did no transaction"
    elif not (run.whole or run.progress):
        reason = f"line {run.line}: its summary lacks the transactions or the tps"
    if reason:
        return Part(Measurements(facts=dict(run.facts)), traits=traits, status="failed", reason=reason)
    return Part(measured(run), traits=traits)
