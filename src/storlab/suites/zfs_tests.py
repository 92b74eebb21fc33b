"""What ``zfs-tests.sh`` makes of its options: runfiles by name, a part of all tags, a single test, its configuration.

Source: ``zfs-tests.sh`` of OpenZFS 2.3.2, as it behaves.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

from storlab.errors import UserError
from storlab.suites.groups import Installed
from storlab.suites.runfile import Runfile

RUNFILES = ("bclone", "common", "freebsd", "linux", "longevity", "perf-regression", "sanity", "sunos")
"""Those that the suite comes with: a bare name is one of these first."""
_FRACTION = re.compile(r"(?P<part>\d{1,6})/(?P<parts>\d{1,6})")
_SINGLE_TIMEOUT = 600  # s


def tags_of(written: str, texts: Iterable[str]) -> str:
    """``-T``: tags, or all tags of these runfiles' last words that a fraction such as ``1/3`` leaves.

    Raises ``UserError`` where it leaves none.
    """
    found = _FRACTION.fullmatch(written)
    if found is None:
        return written
    part, parts = int(found["part"]), int(found["parts"])
    if not 1 <= part <= parts:
        raise UserError(f"-T {written}: it must be K/N with K from 1 to N, such as 1/3")
    words = set()
    for text in texts:
        for line in text.translate(str.maketrans("", "", "[],'")).splitlines():
            if "tags = " in line:
                words.add(line.split()[-1])
    ordered = sorted(word for word in words if "functional" not in word)
    # awk's NR counts from 1, and its remainder is compared with part - 1.
    chosen = [word for number, word in enumerate(ordered, 1) if number % parts == part - 1]
    if not chosen:
        raise UserError(f"-T {written}: no tag is in this part; the runfiles have {len(ordered)}")
    return ",".join(chosen)


def single_test(written: str, user: str, installed: Installed, suite: str) -> Runfile:
    """``-t``: the runfile that has this one test, by its path below the suite or the beginning of its name.

    Raises ``UserError`` where there is none.
    """
    path = written
    if "/" not in written:
        found = sorted(
            file
            for file in installed.executables
            if file.startswith(f"{suite}/") and posixpath.basename(file).startswith(written)
        )
        if not found:
            raise UserError(f"couldn't find test matching '{written}'")
        path = found[0]
    folder, name = posixpath.split(path)
    whole = posixpath.join(suite, folder)
    scripts = {
        role: script if f"{whole}/{script}.ksh" in installed.executables else ""
        for role, script in (("pre", "setup"), ("post", "cleanup"))
    }
    text = (
        f"[DEFAULT]\npre_user = root\nuser = {user}\ntimeout = {_SINGLE_TIMEOUT}\npost_user = root\n\n"
        f"[{folder}]\ntests = [{name!r}]\npre = {scripts['pre']}\npost = {scripts['post']}\ntags = ['functional']\n"
    )
    return Runfile("zfs-tests.run", text)


def configuration(variables: Mapping[str, str], shown: Mapping[str, str], runner: Sequence[str]) -> str:
    """What ``-v`` prints before the first test. ``variables``: of the guest; ``shown``: what was asked for."""
    disks = variables.get("DISKS", "")
    rows = {
        "Runfiles": shown["RUNFILES"],
        "STF_TOOLS": variables.get("STF_TOOLS", ""),
        "STF_SUITE": variables.get("STF_SUITE", ""),
        "STF_PATH": variables.get("STF_PATH", ""),
        "FILEDIR": variables.get("FILEDIR", ""),
        "TMPDIR": variables.get("TMPDIR", ""),
        "FILES": shown["FILES"],
        "LOOPBACKS": "",
        "DISKS": disks,
        "NUM_DISKS": str(len(disks.split())),
        "FILESIZE": shown["FILESIZE"],
        "ITERATIONS": shown["ITERATIONS"],
        "TAGS": shown["TAGS"],
        "STACK_TRACER": shown["STACK_TRACER"],
        "Keep pool(s)": variables.get("KEEP", ""),
        "Missing util(s)": variables.get("STORLAB_MISSING", ""),
    }
    lines = [f"{f'{name}:':<17}{value}" for name, value in rows.items()]
    return "\n".join(["", "--- Configuration ---", *lines, "", " ".join(runner)]) + "\n"
