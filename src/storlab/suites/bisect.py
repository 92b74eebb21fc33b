"""Bisections for real: commits in a worktree, or other candidates; their builds and checks, each in a journal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from storlab.base.errors import MissingTool, RecordsError, StorlabError, UserError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.base.record import Count, Seconds, parse_lines, read_record, to_json
from storlab.records.files import write_durably
from storlab.suites.records.folder import drop_torn_line

_TIME = 300.0  # s, for one command of git


def git(repository: Path, *words: str) -> str:
    """What git prints. Raises ``UserError`` with what it complains of."""
    try:
        ended = subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, text=True, errors="replace", timeout=_TIME
        )
    except FileNotFoundError:
        raise MissingTool("there is no git: install it") from None
    if ended.returncode:
        complaint = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
        raise UserError(f"git {words[0]} in {repository}: {complaint[-1]}")
    return ended.stdout


def commits_between(repository: Path, good: str, bad: str) -> list[str]:
    """The good commit and those after it up to the bad one, oldest first; of a merge, what it brought is one step.

    Raises ``UserError`` if one is not a commit, or the good one is no ancestor of the bad one.
    """
    for each in (good, bad):
        if not _is_commit(repository, each):
            raise UserError(f"{each} is not a commit of {repository}")
    first, last = (git(repository, "rev-parse", "--verify", f"{each}^{{commit}}").strip() for each in (good, bad))
    if first == last:
        raise UserError(f"--good {good} and --bad {bad} are the same commit")
    listed = git(repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
    base = git(repository, "merge-base", first, last).strip()
    if base != first:
        raise UserError(f"--good {good} is not an ancestor of --bad {bad}: take {base[:12]}, from which both come")
    return [first, *listed]


def _is_commit(repository: Path, name: str) -> bool:
    git(repository, "rev-parse", "--git-dir")
    ended = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"],
        capture_output=True,
        timeout=_TIME,
    )
    return ended.returncode == 0 and not name.startswith("-")


def described(repository: Path, commit: str) -> str:
    return git(repository, "log", "-1", "--format=%h %s (%an, %as)", commit).strip()


class Worktree:
    """One worktree, which goes from commit to commit and keeps what builds left, so that they are short."""

    def __init__(self, repository: Path, place: Path) -> None:
        self._repository, self.place = repository, place

    def __enter__(self) -> Worktree:
        git(self._repository, "worktree", "prune")
        if self.place.exists():
            git(self._repository, "worktree", "remove", "--force", str(self.place))
        git(self._repository, "worktree", "add", "--detach", "--no-checkout", str(self.place), "HEAD")
        return self

    def __exit__(self, *about: object) -> None:
        git(self._repository, "worktree", "remove", "--force", str(self.place))

    def check_out(self, commit: str) -> None:
        git(self.place, "checkout", "--quiet", "--force", "--detach", commit)


PLAN, JOURNAL, OUTPUT, TREE = "bisect.json", "tests.jsonl", "output", "tree"
CANDIDATE = "STORLAB_CANDIDATE"
_UNTESTABLE = 125
_NOT_RUN = (126, 127)
_FAILED_SUITE = 3
_GRACE = 10.0  # s, from TERM to KILL


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """What is bisected. ``candidates``: the good one first, the bad one last. ``repository``: empty unless commits."""

    candidates: tuple[str, ...]
    build: tuple[str, ...]
    check: tuple[str, ...]
    error: float
    least: float
    flaky: bool
    timeout: Seconds
    folder: str
    repository: str = ""


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One check. ``passed``: null if the candidate can't be tested."""

    number: Count
    passed: bool | None
    elapsed: Seconds = 0.0
    why: str = ""


_STEP = msgspec.json.Decoder(Step)


def write_plan(folder: Path, plan: Plan) -> None:
    write_durably(folder / PLAN, to_json(plan))


def read_plan(folder: Path) -> Plan:
    try:
        return read_record(folder / PLAN, Plan)
    except (FileNotFoundError, NotADirectoryError):
        raise RecordsError(f"{folder} is no bisection: it has no {PLAN}") from None


def parse_steps(data: bytes, name: str) -> list[Step]:
    """All whole lines. Raises ``RecordsError`` with file and line."""
    return parse_lines(_STEP, data, name)


def read_steps(folder: Path) -> list[Step]:
    path = folder / JOURNAL
    drop_torn_line(path)
    return parse_steps(read_file(path, RECORD), str(path)) if path.exists() else []


def program_of(command: Sequence[str]) -> str:
    """The name of the program that a command runs; Storlab's also by sudo, whose own options may come first."""
    name, *others = (Path(word).name for word in command)
    return "storlab" if name == "sudo" and "storlab" in others else name


@dataclass
class Bench:
    """Tests candidates: from the journal what is in it, then for real. ``notify`` gets a line for each check."""

    folder: Path
    plan: Plan
    tree: Worktree | None
    notify: Callable[[int, Step], None]
    before: list[Step]
    _built: int | None = None
    _count: int = field(default=0)

    def probe(self, number: int) -> bool | None:
        """Whether a check of this candidate passed. Raises ``StorlabError`` if it can't go on."""
        self._count += 1
        if self._count <= len(self.before):
            step = self.before[self._count - 1]
            if step.number != number:
                raise RecordsError(f"{self.folder / JOURNAL} is of another bisection: begin again with another --out")
            return step.passed
        step = self._done(number)
        line = msgspec.json.encode(step) + b"\n"
        with (self.folder / JOURNAL).open("ab") as journal:
            journal.write(line)
            journal.flush()
            os.fsync(journal.fileno())
        self.notify(self._count, step)
        return step.passed

    def _done(self, number: int) -> Step:
        if number != self._built:
            self._built = None
            if self.tree is not None:
                self.tree.check_out(self.plan.candidates[number])
            if self.plan.build:
                status, elapsed = self._run(self.plan.build, number, "build")
                if status != 0:
                    return Step(number, None, elapsed, f"its build {_said(status)}")
            self._built = number
        status, elapsed = self._run(self.plan.check, number, "check")
        return self._judged(number, status, elapsed)

    def _judged(self, number: int, status: int | None, elapsed: float) -> Step:
        name, program = self.plan.candidates[number], program_of(self.plan.check)
        if status == _UNTESTABLE:
            return Step(number, None, elapsed, f"its check {_said(status)}")
        if status in _NOT_RUN or (program == "storlab" and status not in (0, _FAILED_SUITE, None)):
            log = self._log(number, "check")
            raise StorlabError(f"the check of {name} {_said(status)}, which says nothing of it: see {log}")
        return Step(number, status == 0, elapsed, "" if status == 0 else f"it {_said(status)}")

    def _log(self, number: int, what: str) -> Path:
        return self.folder / OUTPUT / f"{self._count:04}-{number}-{what}"

    def _run(self, command: tuple[str, ...], number: int, what: str) -> tuple[int | None, float]:
        """The status of a command, ``None`` at its time-out; its output is kept. Nothing of it is left running."""
        name = self.plan.candidates[number]
        words = [word.replace("{}", name) for word in command]
        log = self._log(number, what)
        log.parent.mkdir(exist_ok=True)
        place = self.tree.place if self.tree is not None else Path(self.plan.folder)
        began = time.monotonic()
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    words, cwd=place, env={**os.environ, CANDIDATE: name}, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise StorlabError(f"cannot run {words[0]}, the {what}: {error.strerror}") from None
            try:
                status: int | None = process.wait(self.plan.timeout or None)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
        return status, time.monotonic() - began


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all of a session, politely first if its leader still runs."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _said(status: int | None) -> str:
    if status is None:
        return "ran into its time-out"
    return f"was ended by signal {-status}" if status < 0 else f"ended with {status}"
