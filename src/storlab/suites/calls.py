"""Which programs a suite's scripts seem to call, themselves or by a function of its libraries, by a look at their text.

Pure. What is looked for is a list of names, and a call is a name that stands where a shell expects a command.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from storlab.suites.model import Suite

LIBRARIES = ("*.shlib", "*.kshlib")
"""The names of files with functions for others."""

# Where a command's name stands: first, or after a word that takes a command. The same to grep -E and to Python.
_BEFORE = (
    r"(^|[|&;(`!]|\$\(|\b(log_must|log_mustnot|log_must_busy|log_must_retry|log_neg|eval|if|then|else|do|while|until|"
    r"sudo|exec|xargs|command -v|is_global_zone|user_run [^ " + "\t\"']+))[ \t\"']*"
)
_AFTER = "([ \t;|&)`\"']|$)"
_CALL = re.compile(rf"{_BEFORE}(?=([\w.+-]+){_AFTER})", re.MULTILINE)  # of anything; in a call, another may begin
_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+([\w-]+)|([\w-]+)[ \t]*\([ \t]*\))", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_RUN_FOR_ALL = re.compile(r".*\.cfg|(setup|cleanup)(\.ksh|\.sh)?")  # of a folder's tests


def pattern_of(names: Iterable[str]) -> str:
    """An extended regular expression, for ``grep -E`` too, of a call of one of these."""
    return f"{_BEFORE}({'|'.join(sorted(map(re.escape, names)))}){_AFTER}"


def functions_that_call(libraries: str, programs: Iterable[str]) -> dict[str, set[str]]:
    """Function → those of the programs that it calls, itself or by other functions. ``libraries``: their whole text."""
    bodies = _bodies(_COMMENT.sub("", libraries))
    callers: dict[str, set[str]] = {}
    for function, body in bodies.items():
        for call in _CALL.finditer(body):
            callers.setdefault(call[3], set()).add(function)
    needed: dict[str, set[str]] = {}
    for program in programs:
        found, left = {program}, [program]
        while left:
            further = callers.get(left.pop(), set()) - found
            found |= further
            left += further
        for function in found & bodies.keys():
            needed.setdefault(function, set()).add(program)
    return {function: needed[function] for function in bodies if function in needed}


def _bodies(text: str) -> dict[str, str]:
    """Function → what stands from its name to the next function's. Of one name, all."""
    begins = [*_FUNCTION.finditer(text)]
    bodies: dict[str, str] = {}
    for begin, following in zip_longest(begins, begins[1:]):
        name = begin[1] or begin[2]
        bodies[name] = bodies.get(name, "") + "\n" + text[begin.end() : following and following.start()]
    return bodies


def parse_calls(lines: Iterable[str], names: Sequence[str]) -> dict[str, set[str]]:
    """File → those of these names that it seems to call, by what ``grep -noE`` printed of it."""
    calls: dict[str, set[str]] = {}
    for line in lines:
        file, _, rest = line.partition(":")
        words = re.split(r"[^\w.+-]+", rest.partition(":")[2])
        if called := set(words).intersection(names):
            calls.setdefault(file, set()).update(called)
    return calls


def by_program(suite: Suite, calls: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Program → the tests that call it, or whose folder's set-up, clean-up or settings do."""
    tests: dict[str, list[str]] = {}
    for group in suite.groups:
        for test in group.tests:
            folder = posixpath.dirname(test.path)
            shared = [called for file, called in calls.items() if _is_run_for(folder, file)]
            for program in sorted(calls.get(test.file, set()).union(*shared)):
                tests.setdefault(program, []).append(test.path)
    return tests


def _is_run_for(folder: str, file: str) -> bool:
    return posixpath.dirname(file) == folder and _RUN_FOR_ALL.fullmatch(posixpath.basename(file)) is not None
