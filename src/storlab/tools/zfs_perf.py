"""Folders ``perf_data`` of the ZFS Test Suite's tests/perf: a trial for each run of fio, a cell for each setting.

Files are named ``TEST.fio.SYNC.SIZE-ios.N-threads.M-filesystems``; up to ZFS 0.7 without the last part. A name without
TEST is a bug of some versions of the suite, such as 2.3.2: they give basename(1) the words of ``env TMPDIR=… TEST``
unquoted, so it fails, and all tests with the same settings write to the same file.

Source: ``get_suffix``, ``do_collect_scripts`` and ``get_system_config`` in ``perf.shlib``, OpenZFS 0.6.5 to 2.4.

What ``zpool iostat -pv`` prints of one pool, with ``-l`` or without, once or at an interval: zpool-iostat(8).

Two lines of headings: what several columns are about, and the columns. Versions that know more waits have further
columns, so columns are identified by their headings, which ``-v`` prints for each interval. See
``print_iostat_header_impl`` in cmd/zpool/zpool_main.c of OpenZFS 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import polars as pl

from storlab.base.errors import ParseError
from storlab.base.reading import read_file
from storlab.base.text import is_whole, printable
from storlab.measurements import SERIES_COLUMNS, metric_frame
from storlab.metrics import MetricSpec
from storlab.tools.fio.importer import FioImporter
from storlab.tools.importer import Part
from storlab.tools.kinds import is_of

_PAIRS = ("capacity", "operations", "bandwidth")
_WAIT = "_wait"
_NONE = "-"
_DIGITS = 20


@dataclass(frozen=True)
class PoolInterval:
    """What a pool did in one interval: column → number, as ``read operations`` or ``total_wait write``.

    Operations and bytes a second; waits in ns. A number that it does not say is not there.
    """

    pool: str
    numbers: Mapping[str, int]


def parse_zpool_iostat(text: str, source: str) -> list[PoolInterval]:
    """An interval for each line of a pool; those of its vdevs are passed over.

    Raises ``ParseError`` with the line of what is no output of ``zpool iostat -p``; a last line that is cut off is left
    out.
    """
    lines = [line.split() for line in text.split("\n")]
    found: list[PoolInterval] = []
    columns: Sequence[str] = ()
    first = False  # whether the next line is that of a pool
    for at, (words, following) in enumerate(zip(lines, [*lines[1:], []], strict=True), start=1):
        if _is_heading(words):
            columns = _columns(lines[at - 2] if at > 1 else [], words[1:], source, at)
        elif not words or _is_heading(following):
            continue  # what the columns are about
        elif set("".join(words)) == {"-"}:
            first = True
        elif columns and first and at < len(lines):  # the last line was ended within, else it would be empty
            found.append(PoolInterval(words[0], dict(_numbers(columns, words[1:], source, at))))
            first = False
    if not columns:
        raise ParseError("is no output of `zpool iostat`: its headings are missing", source, 1)
    return found


def _is_heading(words: Sequence[str]) -> bool:
    return words[:2] in (["pool", "alloc"], ["vdev", "alloc"])


def _columns(about: Sequence[str], names: Sequence[str], source: str, at: int) -> list[str]:
    """``operations read`` and so on: what is above two columns, or above one."""
    found: list[str] = []
    for word in about:
        width = 2 if word in _PAIRS or word.endswith(_WAIT) else 1
        found += [f"{word} {name}" for name in names[len(found) : len(found) + width]]
    if len(found) != len(names):
        raise ParseError("has headings of `zpool iostat` that do not match each other", source, at)
    return found


def _numbers(columns: Sequence[str], words: Sequence[str], source: str, at: int) -> Iterator[tuple[str, int]]:
    if len(words) != len(columns):
        raise ParseError(f"has {len(words)} numbers under {len(columns)} headings", source, at)
    for column, word in zip(columns, words, strict=True):
        if word == _NONE:
            continue
        if not is_whole(word) or len(word) > _DIGITS:
            raise ParseError(f"{word[:50]!r} is not a number as `zpool iostat -p` prints it", source, at)
        yield column, int(word)


def mean_of(intervals: Iterable[PoolInterval], column: str, weight: str = "") -> float | None:
    """A column's mean over the intervals that have it, each weighted by what another column says."""
    pairs = [
        (each.numbers[column], each.numbers.get(weight, 0) if weight else 1)
        for each in intervals
        if column in each.numbers
    ]
    total = sum(weight for _, weight in pairs)
    return sum(number * weight for number, weight in pairs) / total if total else None


_CONFIG = "config.json"
_MOST = 16 * 1024**2  # bytes of a log beside a result
_MOST_FACTS = 1024**2  # bytes; the suite writes a few KiB
_FOLDER = "perf_data"
_NAME = re.compile(
    r"(?P<test>[A-Za-z0-9_-]{0,100}?)(?:\.ksh)?\.fio\."
    r"(?P<suffix>(?P<io>sync|async|)\.(?P<size>[A-Za-z0-9]{1,20})-ios\.(?P<threads>\d{1,5})-threads"
    r"(?:\.(?P<filesystems>\d{1,5})-filesystems)?)"
)
_NAMED = "TEST.fio.SYNC.SIZE-ios.N-threads.M-filesystems"
_UNNAMED = "unnamed"
_IOSTAT = ".zpool.iostat."
_INTERVAL = 1.0  # s, of all collectors of the suite
_NS = 1e-9  # s
_SPECS = {
    MetricSpec("pool.read.iops", "1/s", noun="reads of the pool's disks a second"): ("operations read", "", 1.0),
    MetricSpec("pool.write.iops", "1/s", noun="writes to the pool's disks a second"): ("operations write", "", 1.0),
    MetricSpec("pool.read.bandwidth", "B/s"): ("bandwidth read", "", 1.0),
    MetricSpec("pool.write.bandwidth", "B/s"): ("bandwidth write", "", 1.0),
    MetricSpec("pool.read.wait", "s", "lower", "mean"): ("total_wait read", "operations read", _NS),
    MetricSpec("pool.write.wait", "s", "lower", "mean"): ("total_wait write", "operations write", _NS),
}
"""What `zpool iostat` says of the pool: metric → column, what its mean is weighted by, and its unit."""


class ZfsPerfImporter(FioImporter):
    """A trial for each result of fio; the same test with the same settings again is a round."""

    kind: ClassVar[str] = "zfs-perf"
    raw_name: ClassVar[str] = "results.fio"
    unknown: ClassVar[str] = "which ZFS it was, what its pool consisted of, nor what else the machine did"
    repeats: ClassVar[bool] = True
    clients: ClassVar[bool] = False

    def knows(self, text: bytes) -> bool:
        return is_of(FioImporter.kind, text)

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        """Names say which cell it is: of fio's options, the size of files follows from that of the machine's ARC."""
        return [replace(part, traits={}) for part in super().read(text, source, options)]

    def said_by_name(self, path: Path) -> Mapping[str, str]:
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise ParseError(
                f"tests/perf names results {_NAMED}: `storlab import fio` reads files with other names", str(path)
            )
        said = {key: name[key] or "–" for key in ("io", "size", "threads", "filesystems")}
        return {"test": name["test"] or _test_of(path) or _UNNAMED, **said}

    def notes(self, parts: Sequence[Part]) -> Sequence[str]:
        return (_OVERWRITTEN,) if any(part.traits.get("test") == _UNNAMED for part in parts) else ()

    def beside(self, name: str, text: bytes, names: Collection[str]) -> Sequence[str]:
        found = _NAME.fullmatch(name)
        if found is None:
            return ()
        begin, end = f"{name.partition('.fio.')[0]}.", f".{found['suffix']}"
        own = [each for each in names if each.startswith(begin) and each.endswith(end) and ".fio." not in each]
        return sorted({*own, *({_CONFIG} & set(names))})

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        name, there = Path(source).name, sorted(path.name for path in folder.iterdir())
        beside = there if name == self.raw_name else self.beside(name, b"", there)
        logs = [folder / each for each in beside if _IOSTAT in each]
        parts = [_with_facts(part, folder / _CONFIG) for part in parts]
        # Of a file with several runs of fio, nobody knows which of them a log is of.
        return [_with_pool(parts[0], logs[0])] if len(parts) == 1 and logs else parts


_OVERWRITTEN = (
    "File names lack their test: some versions of the suite, such as 2.3.2, write the results of all tests with the "
    "same settings to one file, so each holds what the last of them left."
)


def _test_of(path: Path) -> str | None:
    """The test whose folder it lies in, as runs of Storlab keep them: ``TEST/perf_data/.fio.…``."""
    folder = path.absolute().parent
    own = folder.parent.name
    return own if folder.name == _FOLDER and re.fullmatch(r"(?:random|sequential)_[a-z_]{1,50}", own) else None


def _with_facts(part: Part, config: Path) -> Part:
    if not config.is_file():
        return part
    try:
        facts = parse_config(read_file(config, _MOST_FACTS), _CONFIG)
    except ParseError as error:
        return part.warned(f"{error}; it is left out")
    return part.with_found(facts={**part.measured.facts, **facts})


def parse_config(text: bytes, source: str) -> dict[str, object]:
    """Facts of the machine by a ``config.json``. Raises ``ParseError`` where it is not whole."""
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"is not JSON: {error}", source) from None
    if not isinstance(read, dict):
        raise ParseError("is not an object in JSON", source)
    return {
        f"machine {printable(str(name))}": {printable(str(key)): printable(str(each)) for key, each in value.items()}
        if isinstance(value, dict)
        else printable(str(value))
        for name, value in read.items()
    }


def _with_pool(part: Part, log: Path) -> Part:
    try:
        intervals = parse_zpool_iostat(read_file(log, _MOST).decode(errors="replace"), log.name)
    except ParseError as error:
        return part.warned(f"{error}: it is left out")
    if part.status != "done" or not intervals:
        return part
    measured = part.measured
    metrics = [
        spec.value(mean * unit)
        for spec, (column, weight, unit) in _SPECS.items()
        if (mean := mean_of(intervals, column, weight)) is not None
    ]
    return part.with_found(
        metrics=pl.concat([measured.metrics, metric_frame(metrics)]),
        series=pl.concat([measured.series, _series(intervals)]),
        declared=(*measured.declared, *_SPECS),
    )


def _series(intervals: Sequence[PoolInterval]) -> pl.DataFrame:
    rows = [
        (None, spec.name, at * _INTERVAL, each.numbers[column] * unit, spec.unit)
        for spec, (column, _, unit) in _SPECS.items()
        for at, each in enumerate(intervals, start=1)
        if column in each.numbers
    ]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
