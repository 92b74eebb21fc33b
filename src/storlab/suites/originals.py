"""What ``test-runner.py`` and ``zfs-tests.sh`` make of their options: suites from paths, runfiles, a part of all tags.

Source: these programs of OpenZFS 2.3.2, as they behave. docs/reference/suites.md says where Storlab differs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.base.errors import UserError
from storlab.suites.groups import EXTENSIONS, ROLES, USERS, Builder, Installed, Written, WrittenTest
from storlab.suites.model import Group, Outcome, Script, Suite, report_name
from storlab.suites.runfile import Runfile
from storlab.suites.selection import Failures, iteration_name
from storlab.suites.zts_text import read_results

BASEDIR = "/var/tmp/test_results"
COMMAND_LINE = "command line"
"""Where a test that is named by its path stands."""


@dataclass(frozen=True)
class Around:
    """The options that say how tests are run that are named by their paths. Empty: none."""

    pre: str = ""
    pre_user: str = ""
    post: str = ""
    post_user: str = ""
    failsafe: str = ""
    failsafe_user: str = ""
    user: str = ""
    timeout: int = 60
    tags: tuple[str, ...] = ()


def suite_of_paths(
    name: str, paths: Sequence[str], around: Around, installed: Installed, testdir: str, *, grouped: bool
) -> Suite:
    """Tests by their absolute paths: files each by itself; folders with all in them, ``grouped`` as a group each."""
    builder = Builder(installed, testdir)
    says = {key: getattr(around, key) for key in (*ROLES, *USERS)}

    def add(name: str, folder: str, files: Sequence[str], *, single: bool) -> None:
        limit = float(around.timeout) or None
        group = Written(name, name, COMMAND_LINE, folder, says, limit, around.tags, single=single)
        builder.add(group, [WrittenTest(file, file, COMMAND_LINE) for file in files])

    for path in sorted(paths):
        below = f"{path.rstrip('/')}/"
        files = sorted(file for file in installed.executables if file.startswith(below))
        if grouped and files:
            for folder in sorted({posixpath.dirname(file) for file in files}):
                scripts = {posixpath.join(folder, each) for each in (around.pre, around.post) if each}
                others = {script + end for script in scripts for end in EXTENSIONS}
                own = [file for file in files if posixpath.dirname(file) == folder and file not in others]
                add(folder, folder, own, single=False)
        else:
            for file in files or [path]:
                add(file, posixpath.dirname(file), [file], single=True)
    return builder.suite(name)


def failed_only(suite: Suite, log: str, source: str) -> Suite:
    """The tests that a ``log`` or console says failed or were killed; all of a group whose set-up did.

    The log may be of tests that lay elsewhere, such as in a source tree: of the ZFS Test Suite's, the path below the
    suite's tests counts. Raises ``UserError`` if it says so of none.
    """
    failed = (Outcome.FAIL, Outcome.KILLED)
    results = [each for each in read_results(log.splitlines()) if each.outcome.classic in failed]
    if not results:
        raise UserError(f"{source}: it has no line of a test that failed")
    bad = Failures(frozenset((each.identifier, report_name(each.path)) for each in results), by_identifier=True)
    groups = []
    for group in suite.groups:
        whole = bad.has(group, group.pre)
        tests = tuple(test for test in group.tests if whole or bad.has(group, test))
        if tests:
            groups.append(replace(group, tests=tests))
    if not groups:
        raise UserError(f"{source}: none of the tests that failed there is in {suite.name}")
    return replace(suite, groups=tuple(groups), absent=())


def dry_run(suite: Suite, outputdir: str) -> str:
    """Every script that would run, in order, as the runner's option ``-d`` describes it."""
    found = []
    for group in suite.groups:
        for script in (group.pre, *group.tests, group.post):
            if script is not None:
                folder = output_folder(group, script)
                about = {
                    "Pathname": script.path,
                    "Identifier": group.identifier or None,
                    "Outputdir": f"{outputdir}/{folder}",
                    "Timeout": int(group.timeout or 0),
                    "User": script.user,
                }
                found.append("".join(f"{key}: {value}\n" for key, value in about.items()))
    return "\n".join(found)


def output_folder(group: Group, script: Script) -> str:
    """Where the runner puts what a script prints, below its output directory."""
    folder = group.folder.partition("/")[2] if group.iteration > 1 else group.folder
    single = script in group.tests and group.name.removesuffix(iteration_name(group.iteration)) == script.path
    return folder if single else f"{folder}/{posixpath.basename(script.path)}"


def template(suite: Suite) -> str:
    return "\n".join(_template(suite))


def _template(suite: Suite) -> Iterator[str]:
    yield from ("[DEFAULT]", "outputdir = " + BASEDIR, "quiet = False", "timeout = 60", "")
    for group in suite.groups:
        yield f"[{group.name}]"
        if group.name != group.tests[0].path:
            yield f"tests = {[posixpath.basename(test.path) for test in group.tests]}"
        for role, script in (("pre", group.pre), ("post", group.post), ("failsafe", group.failsafe)):
            if script is not None:
                path = posixpath.basename(script.path) if role != "failsafe" else script.path
                if role != "failsafe" and group.name == group.tests[0].path:
                    path = script.path
                yield f"{role} = {path}"
                yield f"{role}_user = {script.user}"
        yield f"timeout = {int(group.timeout or 0)}"
        yield f"user = {group.tests[0].user}"
        if group.tags:
            yield f"tags = {list(group.tags)}"
        yield ""


RUNFILES = ("bclone", "common", "freebsd", "linux", "longevity", "perf-regression", "sanity", "sunos")
"""Those that the suite comes with: a bare name is one of these first."""
_FRACTION = re.compile(r"(?P<part>\d{1,6})/(?P<parts>\d{1,6})")
_SINGLE_TIMEOUT = 600  # s


def tags_of(written: str, texts: Iterable[str]) -> str:
    """``-T``: tags, or all tags of these runfiles' last words that a fraction such as ``1/3`` leaves.

    Raises ``UserError`` if it leaves none.
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

    Raises ``UserError`` if there is none.
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
