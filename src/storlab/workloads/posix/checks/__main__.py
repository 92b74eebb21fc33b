"""``python3 FILE.pyz DIRECTORY SECONDS [CHECK …]``: a line of JSON for each check, as soon as it is done.

Each is made in a directory of its own by a process of its own, and has so many seconds. Where the directory then no
longer answers, the rest fails without being tried.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import sys
from collections.abc import Callable, Sequence

from .outcome import Fails, Unsupported, name_of
from .processes import answer
from .table import CHECKS

_LONGEST = 200  # characters of a reason


def main(argv: Sequence[str]) -> None:
    """Makes ``DIRECTORY``, and removes it."""
    root, limit = argv[0], float(argv[1])
    os.umask(0o022)
    answers = True
    for name in argv[2:] or CHECKS:
        if answers:
            outcome, reason = made(CHECKS[name], f"{root}/{name}", limit)
            answers = not reason.startswith("no answer") or _answers(root, limit)
        else:
            outcome, reason = "fail", "not tried: the directory does not answer any more"
        print(json.dumps({"check": name, "outcome": outcome, "reason": reason}), flush=True)
    if answers:
        answer(lambda: _remove(root), limit)


def made(check: Callable[[], str | None], folder: str, limit: float) -> tuple[str, str]:
    """What came of it, and why."""
    found = answer(lambda: _judged(check, folder), limit)
    if found is None:
        return "fail", f"no answer in {limit:g} s"
    answer(lambda: _remove(folder), limit)  # when nobody has a file in it open
    return found[0], found[1]


def _judged(check: Callable[[], str | None], folder: str) -> list[str]:
    outcome, reason = _tried(check, folder)
    return [outcome, _short(reason)]


def _tried(check: Callable[[], str | None], folder: str) -> tuple[str, str]:
    try:
        os.makedirs(folder)
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
    """The line of the check that it comes from."""
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
