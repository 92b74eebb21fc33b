"""fio's JSON document, found in and freed from what surrounds it, and decoded with its shape checked.

fio writes notes and errors to standard output before its document, sometimes after, and to standard
error. With ``--status-interval`` there are several documents, the last of them complete; where people append the
outputs of several runs to one file, each is complete. fio prints documents with their outer braces alone at the start
of a line (``json.c``); other programs pass them on as a single line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from storlab.base.errors import ParseError
from storlab.base.text import first
from storlab.tools.fio.blocks import DECODER, DirectionBlock, JobBlock, OfServers, Root, current

KEY = re.compile(rb'"fio version\\{0,15}"\s{0,9}:')
"""What a document has once, also where it is a string in another one."""
_START = re.compile(
    rb'^(?P<indent> {0,64}|\t{0,16})(?:fio: [^\n{]*(?=\{[ \t]*$)|[^\n{]*(?=\{\s*"fio version"))?'
    rb"(?P<sign>\{|\[(?=\s*\{))",
    re.MULTILINE,
)
"""fio 3.33 ends some messages without a newline."""
_FOLLOWS = re.compile(rb"(?P<indent>)[ \t,]*(?P<sign>\{|\[(?=\s*\{))")
"""The next document, where the end of the file before it was no end of a line."""
_NAME = b"fio version"
_DEPTH = 16
_MOST_DAMAGED = 1000
"""From then on, where one ends is told by its lines: to read as far as its fault may take long."""
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_TRAILING = re.compile(r".*trailing characters \(byte (\d+)\)")


@dataclass(frozen=True)
class Found:
    """A JSON value at ``start``, and its text. ``path``: the keys under which it stands in the value around it."""

    start: int
    text: bytes
    path: tuple[str, ...] = ()


def spans(output: bytes) -> Iterator[tuple[int, int]]:
    """Where documents stand. Any may be damaged, or truncated: by the end, or by the next, whose brace opens a line."""
    end = damaged = 0
    closing: dict[bytes, int] = {}
    while (begun := (end and _FOLLOWS.match(output, end)) or _START.search(output, end)) is not None:
        start = begun.start("sign")
        size = _size(memoryview(output)[start:]) if damaged < _MOST_DAMAGED else 0
        damaged += not size
        end = start + size if size else _damaged_end(output, begun, closing)
        yield start, end


def _size(text: memoryview) -> int:
    """Of the JSON value with which a text begins, in bytes; 0 where it is none."""
    try:
        _VALUE.decode(text)
    except (ValueError, RecursionError) as error:
        after = _TRAILING.fullmatch(str(error))
        return int(after[1]) - 1 if after else 0
    return len(text)


def _damaged_end(output: bytes, begun: re.Match[bytes], closing: dict[bytes, int]) -> int:
    """Where what was to be a value ends, by the lines. ``closing``: where the next such end is, or that none is."""
    opens = b"\n" + begun["indent"] + begun["sign"]
    closes = opens[:-1] + (b"}" if begun["sign"] == b"{" else b"]")
    closed = closing.get(closes, 0)
    if 0 <= closed <= begun.start():
        closing[closes] = closed = output.find(closes, begun.start())
    line = output.find(b"\n", begun.end())
    line = line if line >= 0 else len(output)
    if output[begun.end() : line].rstrip().endswith(closes[-1:]):
        return line
    until = closed if closed >= 0 else len(output)
    another = output.find(opens, begun.end(), until)
    return another + 1 if another >= 0 else closed + len(closes) if closed >= 0 else len(output)


def gaps(of: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    before = 0
    for start, end in of:
        yield before, start
        before = end
    yield before, size


def unwrapped(value: Found, depth: int = 0) -> Iterator[Found]:
    """The documents of fio in a JSON value that is none itself, in order. Raises ``msgspec.DecodeError``."""
    if depth > _DEPTH:
        raise msgspec.DecodeError(f"documents stand more than {_DEPTH} levels deep")
    if value.text.startswith(b'"'):
        text = msgspec.json.decode(value.text, type=str).encode()
        for start, end in spans(text):
            if _NAME in text[start:end]:
                yield from unwrapped(Found(value.start, text[start:end], value.path), depth + 1)
        return
    members: Sequence[tuple[str, msgspec.Raw]]
    if value.text.startswith(b"["):
        members = [("", each) for each in msgspec.json.decode(value.text, type=list[msgspec.Raw])]
    else:
        named = msgspec.json.decode(value.text, type=dict[str, msgspec.Raw])
        if named.keys() & {"jobs", "client_stats"} and "fio version" in named:
            yield value
            return
        members = list(named.items())
    at = 0
    for name, raw in members:
        text = bytes(raw)
        at = max(at, value.text.find(text, at))
        if _NAME in text and text[:1] in b'{["':
            inner = replace(value, start=value.start + at, text=text, path=(*value.path, name) if name else value.path)
            yield from unwrapped(inner, depth + 1)
        at += len(text)


_OLD = re.compile(r"fio-[12]\.(?!99)")  # 2.99 is a draft of 3.0
_HAS_OLD = re.compile(rb'"fio version"\s*:\s*"' + _OLD.pattern.encode())
_OF_FIO_2 = "fio 2 gives latencies in whole µs and bytes in whole KiB: figures are exact to one of these"
_BEFORE_3_13 = re.compile(r"fio-3\.([1-9]|1[0-2])(?!\d)")
# A float that isn't a number: fio prints it as C does, which no JSON reader takes.
_NOT_A_NUMBER = re.compile(rb"(:\s*|\[\s*|,\s*)-?(?:nan|inf)\b")


class NoJson(ParseError):
    """A document that can't be decoded, for it was cut off or damaged; it ``begins`` in that line."""

    begins = 0


_T = TypeVar("_T")
_DECODER = msgspec.json.Decoder(Root)
_OF_SERVERS = msgspec.json.Decoder(OfServers)
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
    return Document(root, _lines(messages, *around), len(found) - 1, notes=_notes(root))


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
    said = (
        f"job {job.jobname} lacks {first(lacks)}, which fio always prints: lines are missing, so its other figures may "
        "be wrong, too"
        for job in (*(root.jobs or ()), *(root.client_stats or ()))
        if (lacks := _lacks(job))
    )
    return (*((_OF_FIO_2,) if _OLD.match(root.version or "") else ()), *said)


def _lacks(job: JobBlock) -> list[str]:
    ways = {"read": job.read, "write": job.write, "trim": job.trim, "mixed": job.mixed}
    there = {name: way for name, way in ways.items() if way is not None}
    if not there:
        return []
    found = [] if "mixed" in there else [name for name in ("read", "write") if name not in there]
    found += [f"{name}.lat_ns" for name, way in there.items() if way.lat_ns is None]
    samples = job.steadystate.data if job.steadystate else None
    numbers = {len(each) for each in (samples.iops, samples.bw, samples.lat_ns) if each} if samples else ()
    return [*found, "samples of its steady state"] if len(numbers) > 1 else found


def _refuse_merged(document: bytes, source: str, line: int) -> None:
    """JSON may be sound without the lines that end one object and begin the next, or with lines of another object: then
    a key is there twice, and a reader takes the last. fio itself prints twice only options, which are all texts, and
    percentiles that nobody asked for (0.00).
    """

    def once(members: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(members)
        if len(found) < len(members) and not all(isinstance(value, str) for value in found.values()):
            twice = next((key for key, value in members if value != found[key]), None)
            if twice is not None:
                said = f"{twice} is there twice in one object: lines of fio's JSON are missing or belong elsewhere"
                raise ParseError(said, source, line)
        return found

    # Numbers stay as they are written: one of thousands of digits is none that Python converts.
    json.loads(_cleaned(document), object_pairs_hook=once, parse_int=str.encode, parse_float=str.encode)


def _lines(*parts: bytes) -> tuple[str, ...]:
    """The non-empty lines of all parts, each once (fio prints some messages twice), in order."""
    lines = (line.strip() for part in parts for line in part.decode(errors="replace").splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def _load(document: bytes, source: str, lines_before: int) -> Root:
    root = _root(document, source, lines_before)
    _refuse_merged(document, source, lines_before + 1)
    return root


def _root(document: bytes, source: str, lines_before: int) -> Root:
    if _HAS_OLD.search(document):
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
    return _NOT_A_NUMBER.sub(rb"\1null", text.decode(errors="replace").encode())


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
