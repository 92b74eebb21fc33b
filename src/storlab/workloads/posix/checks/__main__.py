"""``python3 FILE.pyz DIRECTORY SECONDS [--OPTION=…] [CHECK …]``: a line of JSON for each check, as soon as it is done.

Each is made in a directory of its own by a process of its own, and has so many seconds. Where the directory then no
longer answers, the rest fails without being tried. ``--nodes=A,B --me=A --common=DIRECTORY``: all nodes on these files,
this one, and what they have in common. ``--pjdfstest=ZIP --pjdfstest-limit=SECONDS``: its program and tests. ``python3
FILE.pyz DIRECTORY --hold``: see ``hold`` in ``processes.py``.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from . import pjdfstest
from .outcome import Fails, Unsupported, name_of
from .processes import Turns, answer, hold
from .table import BETWEEN, CHECKS

_LONGEST = 200  # characters of a reason

Check = Callable[[], "str | None"]


@dataclass(frozen=True)
class Place:
    """Where checks are made. ``common`` and ``turns``: with other nodes. ``tests``: the folder of pjdfstest."""

    root: str
    limit: float
    common: str = ""
    turns: Turns | None = None
    tests: str = ""
    tests_limit: float = 0.0

    def made(self, name: str) -> tuple[str, str]:
        if name in BETWEEN:
            if self.turns is None:
                return "unsupported", 'takes several nodes on the same files (shared_files = "same")'
            work = partial(self.turns.play, BETWEEN[name])
            return made(work, f"{self.common}/{name}", self.limit, remove=False)  # others may not be done
        if name.startswith(pjdfstest.PREFIX):
            return made(pjdfstest.check(self.tests, name), f"{self.root}/{name}", self.tests_limit)
        return made(CHECKS[name], f"{self.root}/{name}", self.limit)

    def clear(self) -> None:
        """Remove all that the checks left, once no node looks at it any more."""
        answer(lambda: _remove(self.root), self.limit)
        if self.turns is not None:
            answer(partial(_part, self.turns, self.common), self.limit)


def main(argv: Sequence[str]) -> None:
    """Makes ``DIRECTORY``, and removes it."""
    os.umask(0o022)
    if argv[1] == "--hold":
        hold(argv[0])
        return
    options = dict(word[2:].split("=", 1) for word in argv[2:] if word.startswith("--"))
    names = [word for word in argv[2:] if not word.startswith("--")]
    turns = Turns(options["nodes"].split(","), options["me"]) if "nodes" in options else None
    with _unpacked(options.get("pjdfstest")) as tests:
        limit = float(options.get("pjdfstest-limit", 0))
        _make(Place(argv[0], float(argv[1]), options.get("common", ""), turns, tests, limit), names or list(CHECKS))


def _make(place: Place, names: Sequence[str]) -> None:
    answers = True
    for name in names:
        if answers:
            outcome, reason = place.made(name)
            answers = not reason.startswith("no answer") or _answers(place.root, place.limit)
        else:
            outcome, reason = "fail", "not tried: the directory does not answer any more"
        print(json.dumps({"check": name, "outcome": outcome, "reason": reason}), flush=True)
    if answers:
        place.clear()


@contextmanager
def _unpacked(archive: str | None) -> Iterator[str]:
    """The folder of an archive's files, not on what is looked at; nothing if there is none."""
    if archive is None:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        os.unlink(archive)  # or it would be among the records
        os.chmod(folder, 0o755)
        os.chmod(os.path.join(folder, "pjdfstest"), 0o755)
        yield folder


def _part(turns: Turns, folder: str) -> list[str]:
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    return _remove(folder) if turns.part() else []


def made(check: Check, folder: str, limit: float, *, remove: bool = True) -> tuple[str, str]:
    found = answer(lambda: _judged(check, folder), limit)
    if found is None:
        return "fail", f"no answer in {limit:g} s"
    if remove:
        answer(lambda: _remove(folder), limit)  # when nobody has a file in it open
    return found[0], found[1]


def _judged(check: Check, folder: str) -> list[str]:
    outcome, reason = _tried(check, folder)
    return [outcome, _short(reason)]


def _tried(check: Check, folder: str) -> tuple[str, str]:
    try:
        # It may be another node's, where they make the check together.
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        return "pass", check() or ""
    except Unsupported as error:
        return "unsupported", str(error)
    except Fails as error:
        return "fail", str(error)
    except OSError as error:
        return "fail", f"{_call_of(error)}: {name_of(error)}"
    except Exception as error:
        return "fail", f"{_call_of(error)}: {type(error).__name__}: {error}"


def _call_of(error: Exception) -> str:
    trace, line = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if os.path.basename(os.path.dirname(code.co_filename)) == "checks":
            line = linecache.getline(code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals) or line
        trace = trace.tb_next
    return line.strip().removesuffix(":") or "it"


def _short(reason: str) -> str:
    words = "".join(letter if letter.isprintable() else "?" for letter in reason)
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _remove(folder: str) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    return []


def _answers(root: str, limit: float) -> bool:
    return answer(lambda: [str(len(os.listdir(root)))], limit) is not None


if __name__ == "__main__":
    main(sys.argv[1:])
