"""The tools whose files are imported: one table, with how files are recognised, what is asked, and what is said of it.

Nothing of an importer is loaded for it, so each loads its own parsers, and not those of the others. A new one is a
module and an entry here; or, where patterns are enough, a file in ``readers/``. A package of somebody else's adds
importers by the entry-point group ``storlab.importers``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.base.patterns import pattern as re2_pattern
from storlab.tools.passed_on import peeled, readings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "storlab.importers"
HEAD = 1 << 16
"""Bytes of a file by which it is known, unless nothing in them says what it is."""
_AROUND = 1 << 12
_MARKS = (b"fio version", b"(groupid=", b";fio-")
"""What results begin with that may stand behind any length of other output."""


@dataclass(frozen=True)
class Asked:
    """An option that only one kind of file has to be read by: a text, ``many`` of them, or a whole number."""

    metavar: str
    help: str
    many: bool = False
    file: bool = False  # its value is the text of a file that is named
    within: tuple[int, int] | None = None


@dataclass(frozen=True)
class Kind:
    """One tool: its importer's class, the help of its command and of the files that it takes.

    ``signatures``: lines or marks that the tool alone writes, by their name in a sentence, after "has". ``contains``:
    kinds of which its files have something. ``also``: the options ``clients`` or ``nodes``.
    """

    place: str
    help: str
    files: tuple[str, str]
    signatures: tuple[tuple[str, str], ...] = ()
    contains: frozenset[str] = frozenset()
    options: Mapping[str, Asked] = field(default_factory=dict)
    also: tuple[str, ...] = ()


_PATHS = ("PATH...", "Files, or folders of them.")
KINDS = {
    "blkalgn": Kind(
        "storlab.tools.blkalgn:BlkalgnImporter",
        "Histograms of block requests by blkalgn.\n\n"
        "Its four dialects of JSON are told apart by what is in them. Each file is a cell of the run.",
        ("FILE...", "JSON of blkalgn, of any version."),
        (("histograms of blkalgn", r'"(?:granularity|Block size|Algn size|alignment)"\s*:\s*\{'),),
        options={"dialect": Asked("1-4", "The dialect, where a file does not show it.", within=(1, 4))},
    ),
    "fio": Kind(
        "storlab.tools.fio.importer:FioImporter",
        "Output of fio: JSON, JSON+, terse or for people, with the logs that lie beside it; or kdevops' folder of it."
        "\n\nOptions that differ among the jobs become factors; runs with the same options are rounds, in the order of "
        "their times, or as given.",
        _PATHS,
        (
            ("fio's JSON", r'^[ \t]*\{\s*"fio version"'),
            ("terse lines of fio", r"^[2-9];fio-[^;\n]*;"),
            ("fio's output for people", r"^[^\n]{1,200}: \(groupid=\d+, jobs=\d+\): err="),
            ("fio's JSON", r'"fio version\\{0,15}"\s*:'),
        ),
        also=("clients",),
    ),
    "falcon": Kind(
        "storlab.tools.fio.importer:FalconImporter",
        "Output of fio on several machines at once, FOLDER/NODE or FOLDER/NODE/TEST, and their host's load.\n\n"
        "Files of the same test are one trial. Those of host are what w or uptime printed there.",
        ("FOLDER...", "Folders of results."),
        also=("nodes",),
    ),
    "virtiofs-tests": Kind(
        "storlab.tools.virtiofs_tests:VirtiofsTestsImporter",
        "Raw files of virtiofs-tests: fio jobs on shared folders.\n\n"
        "A cell for each set-up (TEST_NAME) and job, a round for each loop. `storlab report --format virtiofs-tests` "
        "prints the table that is published from such files.",
        _PATHS,
        (("the head of a raw file of virtiofs-tests", r"(?s)\A(?>.*?^TEST_NAME=).*^Running: fio "),),
        contains=frozenset({"fio"}),
    ),
    "zfs-perf": Kind(
        "storlab.tools.zfs_perf:ZfsPerfImporter",
        "Results of the ZFS Test Suite's tests/perf: what fio and zpool iostat said, with config.json.\n\n"
        "File names say test, kind of I/O, size, threads and file systems; the same name in another folder is a round "
        "more.",
        ("FOLDER...", "Folders perf_data."),
    ),
    "sysbench": Kind(
        "storlab.tools.sysbench.importer:SysbenchImporter",
        "Text of sysbench: OLTP, fileio and others, with any report interval; or kdevops' folder of such results.\n\n"
        "Each file is a cell, or a round of one: files with the same label or levels are rounds, in order. In kdevops' "
        "folders, hosts tell set-ups apart: by file system, settings and kernel.",
        ("FILE...", "Text that sysbench printed."),
        (
            ("sysbench's first line", r"^[ \t]*+sysbench \d+\.\d+\S* "),
            ("intervals of sysbench", r"^[ \t]*+\[ *\d+s ?\] (?:thds|reads|threads)"),
            (
                "a closing block of sysbench",
                r"^[ \t]*+(?:SQL statistics|Threads fairness|General statistics|Test execution summary):\r?$",
            ),
        ),
    ),
    "pgbench": Kind(
        "storlab.tools.pgbench.importer:PgbenchImporter",
        "Summaries of pgbench with their progress lines, and its logs of transactions or intervals.\n\n"
        "Logs of the same run's other threads beside it are read too, as are the logs beside a summary.",
        ("FILE...", "What pgbench printed, or its logs."),
        (
            ("what pgbench begins with", r"^[ \t]*+pgbench \(\S[^\n]*\)\s*$"),
            ("a summary of pgbench", r"^[ \t]*+number of transactions actually processed: \d"),
            ("progress lines of pgbench", r"^[ \t]*+progress: [\d.]+ s, [\d.]+ tps, lat "),
            (
                "a log of pgbench's transactions",
                r"\A\d{1,9} \d{1,18} (?:\d{1,15}|failed|skipped|serialization|deadlock) "
                r"\d{1,9} \d{9,12} \d{1,6}(?: \d{1,15}){0,2}$",
            ),
            ("a log of pgbench's intervals", r"\A\d{9,12}(?: \d{1,24}){5}(?: -?\d{1,24})*$"),
        ),
    ),
    "elbencho": Kind(
        "storlab.tools.elbencho.importer:ElbenchoImporter",
        "Results of elbencho: CSV, text, and live statistics as CSV.\n\n"
        "Phases with the same settings that follow each other are one trial, until one comes again.",
        ("FILE...", "What elbencho printed, or its CSV."),
        (
            ("CSV of elbencho", r"\A(?=[^\n]*\boperation,)(?=[^\n]*,time ms \[last\])"),
            ("elbencho's live statistics", r"\A(?=[^\n]*\bPhase,RuntimeMS,Rank,)"),
            ("results of elbencho", r"^[ \t]*+OPERATION +RESULT TYPE +FIRST DONE +LAST DONE"),
        ),
        contains=frozenset({"csv"}),
    ),
    "vdbench": Kind(
        "storlab.tools.vdbench.importer:VdbenchImporter",
        "Results of vdbench: its flat file, which has most, its summary or its totals.\n\n"
        "A trial for each run (RD=); the parameters in which runs differ become factors.",
        ("FILE...", "flatfile.html, summary.html or totals.html."),
        (
            ("a flat file of vdbench", r"^[ \t]*+tod +timestamp +[Rr]un +[Ii]nterval "),
            ("runs of vdbench that start", r"\d\d:\d\d:\d\d\.\d{3} Starting RD="),
        ),
    ),
    "bonnie": Kind(
        "storlab.tools.bonnie.importer:BonnieImporter",
        "Results of Bonnie++: CSV and text tables of all versions.\n\n"
        "A cell for each machine's name; several results of one name are its rounds.",
        ("FILE...", "What Bonnie++ printed, or its CSV."),
        (
            ("CSV of Bonnie++", r"^[ \t]*+(?:format_version,|1\.9\d,1\.9\d|1\.9\d,2\.0\d)"),
            ("a table of Bonnie++", r"Sequential (?:Output|Input|Create)[- ]"),
            ("CSV of Bonnie++ 1.03", r"^[^,\n]{1,63},\d+[kMGT]?(?::\d+[km]?)?,(?:[\d.+]*,){20,}[\d.+]*\s*$"),
        ),
    ),
    "pcap": Kind(
        "storlab.tools.pcap.importer:PcapImporter",
        "Captures of packets: pcap, pcapng, and what tcpdump prints.\n\n"
        "What TCP did: segments, ACKs and how much each acknowledges, retransmits, gaps, by connection and together; "
        "and what the capture lacks. Each file is a cell, or a round of one.",
        ("FILE...", "Captures, or text that tcpdump printed."),
        (
            (
                "a capture of packets",
                r"\A(?:\xa1\xb2(?:\xc3\xd4|\x3c\x4d)|(?:\xd4\xc3|\x4d\x3c)\xb2\xa1|\x0a\x0d\x0d\x0a)",
            ),
            (
                "lines of tcpdump",
                r"^[^\n]{0,200}?[\w.:%-]{1,80}\.[\w-]{1,20} > [\w.:%-]{1,80}\.[\w-]{1,20}: "
                r"(?:Flags \[|[SFPRWEU.]{1,8} )",
            ),
        ),
    ),
    "csv": Kind(
        "storlab.tools.table.importer:TableImporter",
        "Any table, long or wide, with commas, semicolons or tabs.\n\n"
        "Wide: a row is a trial, with a --value for each column of numbers. Long: --metric-column says what each row's "
        "number is of. Rows with the same factors are rounds of one cell, in order or as --round-column numbers them; "
        "with --time-column, they are the series of one trial.",
        ("FILE...", "Tables whose first line names the columns."),
        options={
            "value": Asked(
                "COLUMN[:UNIT[:BETTER]]",
                "Numbers: IOPS:1/s:higher, lat:ms:lower, or METRIC=COLUMN for another name. A unit in the heading need "
                "not be named.",
                many=True,
            ),
            "factor_column": Asked("NAME", "A column that tells set-ups apart.", many=True),
            "metric_column": Asked("NAME", "The column that says what each number is of."),
            "round_column": Asked("NAME", "The column that numbers the repeats, from 0 or 1."),
            "time_column": Asked("NAME[:UNIT]", "Seconds since the trial began, or ms, min."),
            "ignore_column": Asked("NAME", "A column of text, or of a setting, that doesn't matter.", many=True),
            "separator": Asked("SIGN", "Field separator, unless it is comma, semicolon or tab."),
            "decimal": Asked("SIGN", "Decimal separator: . or , (as in 1,5)."),
        },
    ),
    "text": Kind(
        "storlab.tools.readers.importer:PatternImporter",
        "Text of any other tool, with a pattern for each number, or a reader of your own.\n\n"
        "Patterns are those of RE2, and their group is the number: --value 'iops=([0-9.]+) IOPS'. A reader is a file "
        "that says the same for good, with units, factors and series.",
        ("FILE...", "What the tool printed."),
        options={
            "value": Asked(
                "METRIC[:UNIT[:BETTER]]=PATTERN",
                "A number: 'latency.mean:us:lower=avg ([0-9.]+)'. Without unit and direction, those that the name has.",
                many=True,
            ),
            "pick": Asked("WHICH", "Which of several matches counts: first, last, sum, mean, min or max."),
            "reader": Asked("FILE", "A reader of your own, in TOML.", file=True),
        },
    ),
}
READERS = Path(__file__).parent / "readers"


@cache
def reader_names() -> tuple[str, ...]:
    """Of the tools whose output is read by what a file in ``readers/`` says."""
    return tuple(sorted(path.stem for path in READERS.glob("*.toml")))


@cache
def reader_kinds() -> dict[str, Kind]:
    from tomllib import loads

    found = {}
    for name in reader_names():
        reader = loads((READERS / f"{name}.toml").read_text())
        marks = tuple((reader["title"], signature) for signature in reader.get("signatures", ()))
        said = f"{reader['title'][:1].upper()}{reader['title'][1:]}."
        found[name] = Kind(READER, said, ("FILE...", "What it printed."), marks)
    return found


READER = "storlab.tools.readers.importer:ReaderImporter"


@cache
def importers() -> dict[str, EntryPoint]:
    """Kind → where its class is, of all that there are; nothing is loaded.

    A built-in one's name is taken, a reader's is not: a program of its own may know more than that.
    """
    from importlib.metadata import EntryPoint, entry_points  # with all that reads mail headers

    found = {kind: EntryPoint(kind, each.place, GROUP) for kind, each in KINDS.items()}
    readers = {kind: EntryPoint(kind, READER, GROUP) for kind in reader_names()}
    return readers | {entry.name: entry for entry in entry_points(group=GROUP)} | found


def is_reader(kind: str) -> bool:
    return kind in importers() and importers()[kind].value == READER


@dataclass(frozen=True)
class Signature:
    """What files of a kind have: ``what`` is its name in a sentence, after "has"."""

    kind: str
    what: str
    pattern: str

    def of(self, head: bytes) -> bool:
        if self.kind in KINDS:
            return _compiled(self.pattern).search(head) is not None
        return re2_pattern(self.pattern).is_in(head)


_SIGNATURES = [Signature(kind, *each) for kind, of in KINDS.items() for each in of.signatures]


@cache
def _of_readers() -> list[Signature]:
    return [Signature(kind, *each) for kind, of in reader_kinds().items() if is_reader(kind) for each in of.signatures]


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
        if found := _first_of_each(_SIGNATURES, shown):
            break
    for shown in () if found else readings(head):
        if found := _first_of_each(_of_readers(), shown):
            break
    contained = {inner for kind in found if kind in KINDS for inner in KINDS[kind].contains}
    kept = [signature for kind, signature in found.items() if kind not in contained]
    if not kept and not is_fio_log(head) and _is_table(head):
        return [Signature("csv", "a table", "")]
    return kept


def _first_of_each(signatures: Sequence[Signature], text: bytes) -> dict[str, Signature]:
    found: dict[str, Signature] = {}
    for signature in signatures:
        if signature.kind not in found and signature.of(text):
            found[signature.kind] = signature
    return found


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
    own = [signature for signature in (_SIGNATURES if kind in KINDS else _of_readers()) if signature.kind == kind]
    if any(signature.of(text[:HEAD]) for signature in own):
        return True
    if is_fio_log(text):
        return False
    if kind == "csv":
        return _is_table(text[:HEAD])
    return any(signature.of(each) for each in readings(_telling(text)) for signature in own)


def _telling(text: bytes) -> bytes:
    if len(text) <= HEAD:
        return text
    marks = (text.find(mark, HEAD) for mark in _MARKS)
    around = [text[text.rfind(b"\n", 0, at - _AROUND) + 1 : at + _AROUND] for at in marks if at >= 0]
    return b"\n".join([text[:HEAD], *around, text[-HEAD:]])


def contained_in(kind: str, head: bytes) -> list[Signature]:
    inner = KINDS[kind].contains if kind in KINDS else frozenset[str]()
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
    lines = [line for line in head.split(b"\n") if line.strip()][:2]
    if len(lines) < 2 or not any(digit in lines[1] for digit in b"0123456789"):
        return False
    for delimiter in _DELIMITERS:
        sign = bytes([delimiter])
        names, values = (_QUOTED.sub(rb"x", line).split(sign) for line in lines)
        named = [name for name in names if name.strip()]
        if len(named) > 1 and len(names) == len(values) and not any(map(_is_number, named)):
            return True
    return False


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
