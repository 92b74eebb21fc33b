"""What ``check`` of xfstests and of blktests says of tests: on its terminal, and in ``check.log``.

Sources: ``check`` and ``common/rc`` of xfstests, ``check`` of blktests, as of 2024. A line of a test may be followed by
more about it; lists at the end of a section ("Ran:", "Failures:") complete and verify the lines, or stand alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from storlab.base.errors import ParseError
from storlab.suites.model import Outcome

_NAME = r"[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64}"
_LINE = re.compile(rf"(?P<test>{_NAME})(?: => (?P<device>[^\s(\[]{{1,64}}))?(?= =>| \(|\s|\Z)(?P<rest>.*)")
_STATUS = re.compile(r"\[(?P<status>passed|failed|not run|expunged)(?P<more>[^\]]*)\](?P<why>.*)")
_TOOK = re.compile(r"(?:.*\.\.\.\s*|\s\s+|\t\s*)(?P<seconds>\d{1,7})s\Z")
_TOOK_BELOW = re.compile(r"\s+(?P<seconds>\d{1,7})s\Z")
_RUNTIME = re.compile(r"\s+runtime\s.*\.\.\.\s+(?P<seconds>\d{1,7}(?:\.\d{1,9})?)s\Z")
_CLOCKS = re.compile(r"\s*\[(\d\d):(\d\d):(\d\d)\]\s*\[(\d\d):(\d\d):(\d\d)\]\Z")
_LISTS = ("Ran", "Not run", "Failures")
_MORE = re.compile(rf"\s*{_NAME}(?:\s+{_NAME})*\Z")  # of a list that fmt(1) has broken
_CLOSING = re.compile(r"(?:Failed (?P<failed>\d{1,7}) of|Passed all) (?P<all>\d{1,7}) tests\Z")
_SECTION = re.compile(r"SECTION {1,20}-- (?P<name>\S{1,255})")
_YEAR = r"(?:2019|20[2-9]\d)"
_RECENT = re.compile(rf"\d\d:\d\d:\d\d(?: [A-Z]{{2,5}}){{0,2}} {_YEAR}\b|\b{_YEAR}(?:-\d\d-\d\d[ T]| )\d\d:\d\d:")
_BEGINS = ("FSTYP ", "RECREATING ")
_MARKS = ("output mismatch", "no qualified output", "[dumped core]", "_check_")
_SEE = re.compile(r"\(see \S*/(?P<name>[^/\s)]+)\)")  # in the guest, which is gone: the file is kept beside the output
_CHANGED = re.compile(r"    (?P<line>[-+](?![-+][-+] ).*)")
_LONGEST = 4096  # characters of a line that is looked at, but for lists: those of all tests are longer
_MOST_CHANGED = 2  # lines of a diff that are given as the reason


@dataclass
class _Visit:
    """What was said of one try of a test. ``failed``, ``skipped``: why; empty if it is not said."""

    failed: str | None = None
    skipped: str | None = None
    passed: bool = False
    elapsed: float | None = None
    status: str = ""  # on its line, whose reason may stand on the next
    changed: int = 0  # lines of its diff that are in ``failed``

    @property
    def outcome(self) -> Outcome | None:
        """What came of it; ``None`` if it began, and no more is known."""
        if self.failed is not None:
            return Outcome.FAIL
        if self.skipped is not None:
            return Outcome.SKIP
        return Outcome.PASS if self.passed else None

    @property
    def why(self) -> str:
        said = self.failed if self.failed is not None else self.skipped or ""
        return _SEE.sub(r"(see \g<name>)", said)

    @property
    def over(self) -> bool:
        """Whether another line of the same test is another try."""
        return bool(self.status) or self.elapsed is not None

    def fail(self, why: str) -> None:
        self.failed = self.failed or why


Key = tuple[str, str]
"""A test, and the device that it ran on, where blktests names one."""


@dataclass
class Block:
    """One run of one section. ``closed``: whether it has ended; by its summary, which ``blktests`` lacks.

    ``over``: another began, whether or not its own end is there. ``unnamed``: sections have names, and the line with
    that of this one is missing.
    """

    section: str = ""
    unnamed: bool = False
    blktests: bool = False
    visits: dict[Key, list[_Visit]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    closed: bool = False
    over: bool = False

    @property
    def named(self) -> int:
        """How many tests are named, one that ran several times as often."""
        names = {name for name, _ in self.visits}.union(*self.lists.values())
        return max(len(names), len(self.lists.get("Ran", ())), sum(map(len, self.visits.values())))

    def results(self) -> dict[Key, list[_Visit]]:
        for name in self.lists.get("Ran", ()):
            self._last(name).passed = True
        for name in self.lists.get("Not run", ()):
            if (last := self._last(name)).skipped is None:
                last.skipped = ""
        for name in dict.fromkeys(self.lists.get("Failures", ())):
            if not any(each.failed is not None for each in self._of(name)):
                self._last(name).failed = ""
        return self.visits

    def _of(self, test: str) -> list[_Visit]:
        return [each for (name, _), visits in self.visits.items() if name == test for each in visits]

    def _last(self, test: str) -> _Visit:
        return (self._of(test) or self.visits.setdefault((test, ""), [_Visit()]))[-1]


class _Reader:
    """Takes in line after line."""

    def __init__(self, source: str) -> None:
        self.blocks: list[Block] = []
        self._source = source
        self._section, self._fresh = "", False  # whether its line came since the last block began
        self._summary = False  # of all sections at the end, which says again what was said
        self._recent = False  # whether a date in it is of 2019 or later
        self._current: _Visit | None = None
        self._list: list[str] | None = None

    def take(self, number: int, line: str) -> None:
        self._recent = self._recent or _RECENT.search(line) is not None
        if self._list is not None and _MORE.match(line):
            self._list += line.split()
            return
        self._list = None
        if found := _SECTION.match(line):
            self._section, self._fresh, self._current = found["name"], True, None
        elif line.startswith("====="):
            self._summary = bool(self.blocks)
        elif line.startswith(_BEGINS):
            self._summary = False
            self._end()
        elif self._summary:
            return
        elif line.startswith(_LISTS) and (listed := line.partition(":"))[0] in _LISTS:
            lists = self.blocks[-1].lists if self.blocks else {}
            if any(_LISTS.index(each) >= _LISTS.index(listed[0]) for each in lists):
                self._end()
            self._list = self._block().lists.setdefault(listed[0], [])
            self._list += listed[2].split()
            self._current = None
        elif found := _CLOSING.match(line):
            self._close(number, line, int(found["failed"] or 0), int(found["all"]))
        elif found := _LINE.match(line):
            self._test(found)
        elif self._current is not None:
            self._more(self._current, line)

    @property
    def sectioned(self) -> bool:
        return bool(self._section)

    def _block(self) -> Block:
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.closed or last.over or last.section != self._section:
            last = Block(self._section, unnamed=bool(self._section) and not self._fresh)
            self.blocks.append(last)
            self._fresh = False
        return last

    def _end(self) -> None:
        if self.blocks:
            self.blocks[-1].over = True

    def _close(self, number: int, line: str, failed: int, every: int) -> None:
        block, self._current = self._block(), None
        block.closed = True
        listed = block.lists.get("Failures")
        if listed is None:
            listed = [name for (name, _), tries in block.visits.items() for each in tries if each.failed is not None]
        for wanted, found in ((failed, len(listed)), (max(every, block.named), block.named)):
            if wanted != found:
                raise ParseError(f"{line!r}, but {found} are named: lines are missing", self._source, number)
        if (ran := block.lists.get("Ran")) and (stray := self._stray(block, set(ran))):
            raise ParseError(f"{stray} isn't among those that ran: lines are of another run", self._source, number)

    def _stray(self, block: Block, ran: Collection[str]) -> str:
        """A test of one of the other lists that "Ran" should name and does not; empty if there is none.

        Since June 2018 (commit 06dc7f12) "Ran" also names tests that were not run, and before none of them; it never
        names those that are expunged.
        """
        failures, skipped = (block.lists.get(name, ()) for name in ("Failures", "Not run"))
        apart = not self._recent and not any(name in ran for name in skipped)
        return next((name for name in (*failures, *(() if apart else skipped)) if name not in ran), "")

    def _test(self, found: re.Match[str]) -> None:
        rest = found["rest"]
        status = _STATUS.search(rest)
        mark = next((each for each in _MARKS if each in rest), None)
        took, clocks = _TOOK.match(rest), _CLOCKS.match(rest)
        blktests = rest.startswith(" (") or bool(found["device"])
        if not (status or mark or took or clocks or "..." in rest or blktests):
            return  # a test's name, in some other text
        key = found["test"], found["device"] or ""
        if self._block().lists:
            self._end()  # they come after all tests
        if blktests and any(each.over for each in self._block().visits.get(key, ())):
            self.blocks[-1].closed = True  # it tries no test again: another run begins
        block = self._block()
        block.blktests |= blktests
        visits = block.visits.setdefault(key, [])
        if not visits or visits[-1].over:
            visits.append(_Visit())
        visit = self._current = visits[-1]
        if status is not None:
            self._judge(visit, status)
        elif mark is not None:
            visit.fail(rest[rest.index(mark) :])
            visit.status = "failed"
        elif took is not None:
            visit.passed, visit.elapsed = True, float(took["seconds"])
        elif clocks is not None:
            hour, minute, second, *end = map(int, clocks.groups())
            visit.passed = True
            visit.elapsed = float(((end[0] - hour) * 3600 + (end[1] - minute) * 60 + end[2] - second) % 86400)

    def _judge(self, visit: _Visit, status: re.Match[str]) -> None:
        visit.status, why = status["status"], status["why"]
        if visit.status in ("not run", "expunged"):
            visit.skipped = why.strip(" -:") or ("it is expunged" if visit.status == "expunged" else "")
        elif visit.status == "failed":
            visit.fail(f"{status['more'].strip(', ')} {why.strip(' -')}".strip())
        else:
            visit.passed = True

    def _more(self, visit: _Visit, line: str) -> None:
        if found := _TOOK_BELOW.match(line) or _RUNTIME.match(line):
            visit.elapsed = float(found["seconds"])
        elif line.startswith("_check_"):
            visit.fail(line)
        elif not line.startswith("    "):
            return
        elif visit.status == "not run" and not visit.skipped:
            visit.skipped = line.strip()
        elif visit.status == "failed" and visit.failed == "":
            visit.failed = "output mismatch" if line.lstrip().startswith("--- ") else line.strip()
        elif visit.failed and "output mismatch" in visit.failed and (found := _CHANGED.match(line)):
            visit.changed += 1
            if visit.changed <= _MOST_CHANGED:
                visit.failed += f"{';' if visit.changed > 1 else ':'} {found['line'].strip()}"


def read_check_log(lines: Iterable[str], source: str) -> list[Block]:
    """All sections that ran, in order; none if no line is of ``check``.

    Raises ``ParseError`` if its summary says that more tests failed than are named.
    """
    reader = _Reader(source)
    for number, line in enumerate(lines, 1):
        reader.take(number, (line if line.startswith(_LISTS) else line[:_LONGEST]).rstrip())
    for block in reader.blocks:
        block.unnamed |= not block.section and reader.sectioned
    return reader.blocks


def read_check(lines: Iterable[str], test: str, code: int | None) -> tuple[Outcome, str]:
    """What came of one test, by all that ``check`` printed of it and its exit status, and why."""
    visits: list[_Visit] = []
    try:
        for block in read_check_log(lines, "check"):
            visits += [each for (name, _), tries in block.results().items() if name == test for each in tries]
    except ParseError as error:
        return Outcome.FAIL, str(error)
    outcomes = Counter(each.outcome for each in visits)
    for outcome in (Outcome.FAIL, Outcome.SKIP, Outcome.PASS):
        if outcome is not Outcome.FAIL and code != 0:
            return Outcome.FAIL, f"check ended with status {code}" if code is not None else ""
        if outcomes[outcome]:
            return outcome, next((each.why for each in visits if each.outcome is outcome and each.why), "")
    return Outcome.FAIL, "check printed no result of it"


def sections(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks by run: a section that comes again is of the next one."""
    run: list[Block] = []
    for block in blocks:
        if any(each.section == block.section for each in run):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


TEST = re.compile(r"[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64}")
_BEGIN = re.compile(r"^_begin_fstest +(?P<groups>[^#\n]+)", re.MULTILINE)


def read_group_list(text: str) -> dict[str, tuple[str, ...]]:
    """Test → its groups, by a ``group.list`` or ``group`` file of xfstests."""
    found = {}
    for line in text.splitlines():
        name, *groups = line.partition("#")[0].split() or [""]
        if name and TEST.fullmatch(f"x/{name}"):
            found[name] = tuple(groups)
    return found


def groups_in(text: str) -> tuple[str, ...] | None:
    """The groups that a test itself names; ``None`` if it names none. blktests knows ``quick`` only."""
    if (found := _BEGIN.search(text)) is not None:
        return tuple(found["groups"].split())
    if re.search(r"^(?:DESCRIPTION|QUICK|TIMED|CAN_BE_ZONED)=", text, re.MULTILINE):
        return ("quick",) if re.search(r"^QUICK=1", text, re.MULTILINE) else ()
    return None


def read_excludes(text: str) -> list[str]:
    return [line.split()[0] for line in (each.partition("#")[0] for each in text.splitlines()) if line.strip()]


def chosen(
    tests: Mapping[str, Collection[str]], named: Collection[str], groups: Collection[str], without: Collection[str]
) -> list[str]:
    """Tests by name, or in one of these groups, and in none of those ``without``; all if nothing is named.

    A directory is a group of its own, as for blktests.
    """

    def kinds(test: str) -> set[str]:
        return {*tests[test], test.partition("/")[0], f"{test.partition('/')[0]}/all"}

    def wanted(test: str) -> bool:
        return (not named and not groups) or test in named or bool(kinds(test) & set(groups))

    return [test for test in sorted(tests) if wanted(test) and not kinds(test) & set(without)]
