"""fio's JSON document, found in and freed from what surrounds it, and decoded with its shape checked.

fio writes notes and errors to standard output before its document, sometimes after, and to standard
error. With ``--status-interval`` there are several documents, the last of them complete; where people append the
outputs of several runs to one file, each is complete. fio prints documents with their outer braces alone at the start
of a line (``json.c``); other programs pass them on as a single line.

The classes name what is read of the document; msgspec skips the rest of it undecoded, three quarters of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from storlab.errors import ParseError
from storlab.formats.fio.finding import KEY, Found, gaps, spans, unwrapped

_OLD = re.compile(r"fio-[12]\.(?!99)")  # 2.99 is a draft of 3.0
_HAS_OLD = re.compile(rb'"fio version"\s*:\s*"' + _OLD.pattern.encode())
_OF_FIO_2 = "fio 2 gives latencies in whole µs and bytes in whole KiB: figures are exact to one of these"
_BEFORE_3_13 = re.compile(r"fio-3\.([1-9]|1[0-2])(?!\d)")
# A float that isn't a number: fio prints it as C does, which no JSON reader takes.
_NOT_A_NUMBER = re.compile(rb"(:\s*|\[\s*|,\s*)-?(?:nan|inf)\b")

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
MOST_OPERATIONS = 1 << 53
"""In one histogram: lets a thousand be added without overflow."""
Operations = Annotated[int, Meta(ge=0, le=MOST_OPERATIONS)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)] | None
"""``None``: what fio could not compute (``nan``), as where there was nothing to measure."""


class Latency(Struct, frozen=True):
    """``slat_ns``, ``clat_ns``, ``lat_ns``. ``percentile`` where fio kept percentiles of this kind, and ``bins`` then
    only in json+.

    ``n`` since fio 3.18; ``counted`` gives it where it is missing.
    """

    minimum: Count = msgspec.field(name="min")
    maximum: Count = msgspec.field(name="max")
    mean: Number
    n: Operations = msgspec.field(name="N", default=0)
    percentile: dict[str, Count] = {}  # "99.000000": ns
    bins: dict[str, Operations] = {}  # the value that fio prints for a bin, "19072": operations

    @property
    def has_bins(self) -> bool:
        return any(self.bins.values())

    def counted(self, operations: int) -> Latency:
        """With the number of its operations: those in its bins or, where there are none either, ``operations``."""
        if self.n or not self.maximum:  # nothing was measured where the maximum is 0, as with disable_clat
            return self
        return msgspec.structs.replace(self, n=sum(self.bins.values()) or operations)


NO_LATENCY = Latency(0, 0, 0.0, 0)


class DirectionBlock(Struct, frozen=True):
    """``read``, ``write``, ``trim``, ``mixed``; ``runtime`` in ms."""

    io_bytes: Count
    total_ios: Operations
    runtime: Count
    slat_ns: Latency | None = None
    clat_ns: Latency | None = None
    lat_ns: Latency | None = None


class SyncBlock(Struct, frozen=True):
    """``sync``: fsync and its like."""

    lat_ns: Latency
    total_ios: Operations = 0


class Samples(Struct, frozen=True):
    """``steadystate.data``: samples of the last window."""

    iops: list[Number] | None = None
    bw: list[Number] | None = None
    lat_ns: list[Number] | None = None


class SteadyBlock(Struct, frozen=True):
    """``steadystate``; ``ss`` is the criterion, such as ``iops_slope:0.3%``."""

    criterion: str = msgspec.field(name="ss")
    attained: Count
    duration: Count
    max_deviation: Number
    slope: Number
    data: Samples


class JobBlock(Struct, frozen=True):
    """One of ``jobs``; ``job_runtime`` (since fio 3.8) in ms, summed over merged jobs; CPU times in percent of it.

    ``hostname`` and ``port``: of the server that ran it, under ``fio --client``.
    """

    jobname: str
    groupid: Count
    error: Count
    usr_cpu: Number
    sys_cpu: Number
    job_runtime: Count = 0
    total_err: Count | None = None
    read: DirectionBlock | None = None
    write: DirectionBlock | None = None
    trim: DirectionBlock | None = None
    mixed: DirectionBlock | None = None
    sync: SyncBlock | None = None
    steadystate: SteadyBlock | None = None
    options: dict[str, Any] | None = msgspec.field(name="job options", default=None)
    hostname: str = ""
    port: Count = 0


class _WithoutOptions(Struct, frozen=True):
    version: str | None = msgspec.field(name="fio version", default=None)
    timestamp: Count | None = None  # of the report: when fio wrote it, s
    timestamp_ms: Count | None = None  # under ``fio --client`` there is none
    jobs: list[JobBlock] | None = None
    client_stats: list[JobBlock] | None = None


class Root(_WithoutOptions, frozen=True):
    """The document. ``client_stats`` takes the place of ``jobs`` under ``fio --client``."""

    options: dict[str, Any] | None = msgspec.field(name="global options", default=None)


class _OfServers(_WithoutOptions, frozen=True):
    """Of several servers, since fio 3.39: the options of each, among them its ``hostname`` and ``port``."""

    options: list[dict[str, Any]] = msgspec.field(name="global options", default=[])

    @property
    def one(self) -> Root:
        """With the options that all servers have in common, and those of one with its jobs."""
        servers = {(each.pop("hostname", ""), each.pop("port", 0)): each for each in map(dict, self.options)}
        first, *others = servers.values() or ({},)
        common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}

        def with_its_own(job: JobBlock) -> JobBlock:
            of_server = servers.get((job.hostname, job.port), {})
            its_own = {name: value for name, value in of_server.items() if name not in common}
            return msgspec.structs.replace(job, options={**its_own, **(job.options or {})})

        jobs, stats = (
            None if each is None else list(map(with_its_own, each)) for each in (self.jobs, self.client_stats)
        )
        return Root(self.version, self.timestamp, self.timestamp_ms, jobs, stats, common)


class NoJson(ParseError):
    """A document that can't be decoded, for it was cut off or damaged; it ``begins`` in that line."""

    begins = 0


_T = TypeVar("_T")
_DECODER = msgspec.json.Decoder(Root)
_OF_SERVERS = msgspec.json.Decoder(_OfServers)
_SERVERS = re.compile(rb'"global options"\s*:\s*\[')


@dataclass(frozen=True)
class Document:
    """A document and the lines around it. ``dropped`` is the number of earlier documents; it begins at ``line``.

    ``path``: the keys under which it stands in other JSON. ``notes``: what is known of its figures, in sentences.
    """

    root: Root
    messages: tuple[str, ...]
    dropped: int = 0
    line: int = 1
    path: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_document(output: bytes, source: str, messages: bytes = b"") -> Document | tuple[str, ...]:
    """The last JSON document of fio's standard output; where there is none at all, just the messages.

    ``messages`` is fio's standard error, if kept apart. Raises ``ParseError`` with source and, where the
    document is truncated or damaged, line; where a value in it isn't what it should be, with its path.
    """
    found = list(spans(output))
    if not found:
        return _lines(messages, output)
    start, end = found[-1]
    root = _load(output[start:end], source, output.count(b"\n", 0, start))
    around = [output[before:after] for before, after in gaps(found, len(output))]
    return Document(root, _lines(messages, *around), len(found) - 1)


def read_documents(output: bytes, source: str) -> tuple[list[Document], list[NoJson]]:
    """Every document of a file, in order, with the lines before it (the last: and after it); and what is no JSON.

    That is what a fio that was killed leaves, or a file that was cut off. Raises ``ParseError`` where a value in a
    document isn't what it should be.
    """
    where = list(spans(output))
    found, broken = list[Document](), list[NoJson]()
    line, counted = 1, 0
    for (start, end), (gap, until) in zip(where, gaps(where, len(output)), strict=False):
        line, counted = line + output.count(b"\n", counted, start), start
        try:
            first, *others = _inside(output[start:end], source, line)
        except NoJson as error:
            error.begins = line
            broken.append(error)
        else:
            found += [replace(first, messages=_lines(output[gap:until])), *others]
    if found and where:
        found[-1] = replace(found[-1], messages=(*found[-1].messages, *_lines(output[where[-1][1] :])))
    return found, broken


def _inside(value: bytes, source: str, line: int) -> Iterator[Document]:
    """The document that a JSON value is, or those in it, each with its path."""
    fault: ParseError | None = None
    if value[:1] == b"{":
        try:
            root = _load(value, source, line - 1)
        except NoJson:
            raise
        except ParseError as error:
            fault = error
        else:
            if root.jobs is not None or root.client_stats is not None or not KEY.search(value):
                yield Document(root, (), line=line, notes=_notes(root))
                return
    value = _cleaned(value)
    try:
        found = list(unwrapped(Found(0, value)))
    except (ValueError, RecursionError) as error:
        raise NoJson(f"fio's JSON is damaged or truncated: {error}", source, line) from None
    if fault is not None and (not found or found[0].start == 0):
        raise fault
    at = 0
    for each in found:
        line, at = line + value.count(b"\n", at, each.start), each.start
        root = _load(each.text, source, line - 1)
        yield Document(root, (), line=line, path=each.path, notes=_notes(root))
    if not found:
        yield Document(Root(), (), line=line)


def _notes(root: Root) -> tuple[str, ...]:
    return (_OF_FIO_2,) if _OLD.match(root.version or "") else ()


def _lines(*parts: bytes) -> tuple[str, ...]:
    """The non-empty lines of all parts, each once (fio prints some messages twice), in order."""
    lines = (line.strip() for part in parts for line in part.decode(errors="replace").splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def _load(document: bytes, source: str, lines_before: int) -> Root:
    if _HAS_OLD.search(document):
        from storlab.formats.fio.version2 import DECODER, current

        return current(_decode(DECODER, document, source, lines_before), source, lines_before + 1)
    try:
        return _decode(_DECODER, document, source, lines_before)
    except NoJson:
        raise
    except ParseError:
        if not _SERVERS.search(document):
            raise
        return _decode(_OF_SERVERS, document, source, lines_before).one


def _decode(decoder: msgspec.json.Decoder[_T], text: bytes, source: str, lines_before: int) -> _T:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):
        text = _cleaned(text)
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        path = path.replace("$.", "").replace("`", "")
        said = f"{path or 'the document'} isn't what fio writes: {reason}"
        raise ParseError(said, source, lines_before + 1) from None
    except (msgspec.DecodeError, RecursionError) as error:
        reason, _, byte = str(error).partition(" (byte ")
        at = int(byte[:-1]) if byte else len(text)
        lines = text.count(b"\n", 0, at) + 1
        raise NoJson(f"fio's JSON is damaged or truncated: {reason}", source, lines_before + lines) from None


def _cleaned(text: bytes) -> bytes:
    """Without what no JSON reader takes; paths may be in any encoding."""
    return _NOT_A_NUMBER.sub(rb"\1null", text.decode(errors="replace").encode())


def untold(job: str) -> dict[str, Any]:
    """The options of a job of which nothing is known: dashes, and not fio's defaults; its name must do."""
    return {**dict.fromkeys(("rw", "bs", "ioengine", "iodepth", "direct"), "–"), "job": job}


def percentiles_in_place(block: JobBlock, root: Root) -> JobBlock:
    """A job of ``root`` with its percentiles in ``clat_ns`` or ``lat_ns``: of whichever they are.

    fio 3.1 to 3.12 print those of the total latency with the completion latency, until its commit e5eb6fbf9161. Where
    there are no bins, only the options tell of which they are (``fixup_options`` in ``init.c`` of 3.12).
    """
    if not (_BEFORE_3_13.match(root.version or "") and _inverse_percentiles(options_of(block, root))):
        return block
    ways = (block.read, block.write, block.trim, block.mixed)
    read, write, trim, mixed = (None if way is None else _with_total_percentiles(way) for way in ways)
    return msgspec.structs.replace(block, read=read, write=write, trim=trim, mixed=mixed)


def keeps_total(block: JobBlock, root: Root) -> bool:
    """Whether a job of ``root`` was told to keep total latencies only, or percentiles of these only."""
    options = options_of(block, root)
    if options.get("disable_clat", "0") != "0":
        return True
    if _BEFORE_3_13.match(root.version or ""):
        return _inverse_percentiles(options)
    return options.get("lat_percentiles", "0") != "0" and options.get("clat_percentiles") == "0"


def options_of(block: JobBlock, root: Root) -> Mapping[str, object]:
    """All options that hold for a job, the global ones among them."""
    return {**(root.options or {}), **(block.options or {})}


def _inverse_percentiles(options: Mapping[str, object]) -> bool:
    """To fio before 3.13, each of the two options is the inverse of the other, where only one is given."""
    if "lat_percentiles" in options:
        return options["lat_percentiles"] != "0"
    return options.get("clat_percentiles") == "0"


def _with_total_percentiles(way: DirectionBlock) -> DirectionBlock:
    completion, total = way.clat_ns, way.lat_ns
    if completion is None or total is None or not completion.percentile:
        return way
    return msgspec.structs.replace(
        way,
        clat_ns=msgspec.structs.replace(completion, percentile={}),
        lat_ns=msgspec.structs.replace(total, percentile=completion.percentile),
    )
