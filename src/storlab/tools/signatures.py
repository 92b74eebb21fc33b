"""Which tool wrote a file, by what is in it and never by its name.

Each signature is a line, or a mark, that the tool alone writes. Nothing of the importers is loaded for it; those of
extensions are asked by ``knows``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from storlab.tools.passed_on import peeled

HEAD = 1 << 16
"""Bytes of a file by which it is known, unless nothing in them says what it is."""
_AROUND = 1 << 12
_MARKS = (b"fio version", b"(groupid=", b";fio-")
"""What results begin with that may stand behind any length of other output."""


@dataclass(frozen=True)
class Signature:
    """What files of a kind have: ``what`` is its name in a sentence, after "has"."""

    kind: str
    what: str
    pattern: str

    def of(self, head: bytes) -> bool:
        return _compiled(self.pattern).search(head) is not None


_SIGNATURES = (
    Signature("fio", "fio's JSON", r'^[ \t]*\{\s*"fio version"'),
    Signature("fio", "terse lines of fio", r"^[2-9];fio-[^;\n]*;"),
    Signature("fio", "fio's output for people", r"^[^\n]{1,200}: \(groupid=\d+, jobs=\d+\): err="),
    Signature("fio", "fio's JSON", r'"fio version\\{0,15}"\s*:'),
    Signature("sysbench", "sysbench's first line", r"^[ \t]*+sysbench \d+\.\d+\S* "),
    Signature("sysbench", "intervals of sysbench", r"^[ \t]*+\[ *\d+s ?\] (?:thds|reads|threads)"),
    Signature(
        "sysbench",
        "a closing block of sysbench",
        r"^[ \t]*+(?:SQL statistics|Threads fairness|General statistics|Test execution summary):\r?$",
    ),
    Signature("bonnie", "CSV of Bonnie++", r"^[ \t]*+(?:format_version,|1\.9\d,1\.9\d|1\.9\d,2\.0\d)"),
    Signature("bonnie", "a table of Bonnie++", r"Sequential (?:Output|Input|Create)[- ]"),
    Signature("bonnie", "CSV of Bonnie++ 1.03", r"^[^,\n]{1,63},\d+[kMGT]?(?::\d+[km]?)?,(?:[\d.+]*,){20,}[\d.+]*\s*$"),
    Signature("pgbench", "what pgbench begins with", r"^[ \t]*+pgbench \(\S[^\n]*\)\s*$"),
    Signature("pgbench", "a summary of pgbench", r"^[ \t]*+number of transactions actually processed: \d"),
    Signature("pgbench", "progress lines of pgbench", r"^[ \t]*+progress: [\d.]+ s, [\d.]+ tps, lat "),
    Signature(
        "pgbench",
        "a log of pgbench's transactions",
        r"\A\d{1,9} \d{1,18} (?:\d{1,15}|failed|skipped|serialization|deadlock) "
        r"\d{1,9} \d{9,12} \d{1,6}(?: \d{1,15}){0,2}$",
    ),
    Signature("pgbench", "a log of pgbench's intervals", r"\A\d{9,12}(?: \d{1,24}){5}(?: -?\d{1,24})*$"),
    Signature("elbencho", "CSV of elbencho", r"\A(?=[^\n]*\boperation,)(?=[^\n]*,time ms \[last\])"),
    Signature("elbencho", "elbencho's live statistics", r"\A(?=[^\n]*\bPhase,RuntimeMS,Rank,)"),
    Signature("elbencho", "results of elbencho", r"^[ \t]*+OPERATION +RESULT TYPE +FIRST DONE +LAST DONE"),
    Signature("vdbench", "a flat file of vdbench", r"^[ \t]*+tod +timestamp +[Rr]un +[Ii]nterval "),
    Signature("vdbench", "runs of vdbench that start", r"\d\d:\d\d:\d\d\.\d{3} Starting RD="),
    Signature(
        "virtiofs-tests", "the head of a raw file of virtiofs-tests", r"(?s)\A(?>.*?^TEST_NAME=).*^Running: fio "
    ),
    Signature("blkalgn", "histograms of blkalgn", r'"(?:granularity|Block size|Algn size|alignment)"\s*:\s*\{'),
    Signature(
        "pcap",
        "a capture of packets",
        r"\A(?:\xa1\xb2(?:\xc3\xd4|\x3c\x4d)|(?:\xd4\xc3|\x4d\x3c)\xb2\xa1|\x0a\x0d\x0d\x0a)",
    ),
    Signature(
        "pcap",
        "lines of tcpdump",
        r"^[^\n]{0,200}?[\w.:%-]{1,80}\.[\w-]{1,20} > [\w.:%-]{1,80}\.[\w-]{1,20}: (?:Flags \[|[SFPRWEU.]{1,8} )",
    ),
)  # fmt: skip
_CONTAINS = {"virtiofs-tests": frozenset({"fio"}), "elbencho": frozenset({"csv"})}
"""Kinds whose files have what another tool writes in them."""
_DELIMITERS = b",;\t"
_QUOTED = re.compile(rb'"[^"\n]*"')
_FIO_LOG = re.compile(rb"\A(?:\d+, \d+, [0-2], \d+(?:, \d+){0,2}\r?\n){2,}")


@cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode("latin-1"), re.MULTILINE)


def signatures_of(head: bytes) -> list[Signature]:
    """One for each kind that a file which begins like this can be of, without what others only contain.

    ``csv`` only where there is no other.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    found: dict[str, Signature] = {}
    for shown in peeled(head):
        for signature in _SIGNATURES:
            if signature.kind not in found and signature.of(shown):
                found[signature.kind] = signature
        if found:
            break
    contained = {inner for kind in found for inner in _CONTAINS.get(kind, ())}
    kept = [signature for kind, signature in found.items() if kind not in contained]
    if not kept and not is_fio_log(head) and _is_table(head):
        return [Signature("csv", "a table", "")]
    return kept


def signatures_in(text: bytes) -> list[Signature]:
    """Those of a whole file: as it begins or, where that says nothing, further on in it, or behind prefixes."""
    found = signatures_of(text[:HEAD])
    if is_fio_log(text) or (found and not (found[0].kind == "csv" and any(mark in text for mark in _MARKS))):
        return found
    for each in peeled(_telling(text)):
        further = [signature for signature in signatures_of(each) if signature.kind != "csv"]
        if further:
            return further
    return found


def is_of(kind: str, text: bytes) -> bool:
    """Whether a file has what one of this kind has, whatever else it has."""
    own = [signature for signature in _SIGNATURES if signature.kind == kind]
    if any(signature.of(text[:HEAD]) for signature in own):
        return True
    if is_fio_log(text):
        return False
    if kind == "csv":
        return _is_table(text[:HEAD])
    return any(signature.of(each) for each in peeled(_telling(text)) for signature in own)


def _telling(text: bytes) -> bytes:
    """How a long file begins and ends, and what is around marks in it."""
    if len(text) <= HEAD:
        return text
    marks = (text.find(mark, HEAD) for mark in _MARKS)
    around = [text[text.rfind(b"\n", 0, at - _AROUND) + 1 : at + _AROUND] for at in marks if at >= 0]
    return b"\n".join([text[:HEAD], *around, text[-HEAD:]])


def contained_in(kind: str, head: bytes) -> list[Signature]:
    """What else a file of this kind has in it, by which it could be taken for another tool's."""
    inner = _CONTAINS.get(kind, frozenset())
    return [signature for signature in _SIGNATURES if signature.kind in inner and signature.of(head)][:1]


def is_fio_log(head: bytes) -> bool:
    """Whether it begins as a log of fio does: of what, only its name says, so it is read with fio's JSON."""
    return _FIO_LOG.match(head) is not None


def _is_table(head: bytes) -> bool:
    """Whether its first two lines have as many fields, and the first names columns: two or more, and none a
    number; and the second has a digit.
    """
    if b"\0" in head:
        return False
    lines = _lines(head)
    if len(lines) < 2 or not any(digit in lines[1] for digit in b"0123456789"):
        return False
    for delimiter in _DELIMITERS:
        sign = bytes([delimiter])
        names, values = (_QUOTED.sub(rb"x", line).split(sign) for line in lines)
        named = [name for name in names if name.strip()]
        if len(named) > 1 and len(names) == len(values) and not any(map(_is_number, named)):
            return True
    return False


def _lines(head: bytes) -> Sequence[bytes]:
    return [line for line in head.split(b"\n") if line.strip()][:2] or [b""]


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
