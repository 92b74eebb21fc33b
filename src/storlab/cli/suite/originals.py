"""``storlab suite test-runner``, ``zfs-tests`` and ``check``: the options of suites' own programs, in guests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Strings
from storlab.cli.output import show, warn
from storlab.cli.suite.options import GuestOptions, OriginalOptions, Showing, here_of, with_tables

if TYPE_CHECKING:
    from storlab.suites.groups import Installed
    from storlab.suites.model import Suite
    from storlab.suites.records.folder import Here
    from storlab.suites.runfile import Runfile


_KMEMLEAK = (
    "-m: kmemleak needs a kernel with CONFIG_DEBUG_KMEMLEAK, which guests don't have; leave it out. Kernel messages of "
    "each guest are in its console.log"
)
_TIMEOUT_DEBUG = (
    "-O writes nothing to /dev/kmsg: the kernel stacks and logs at a time-out are in killed.txt, in the run's folder"
)
_NFS = (
    "performance tests over NFS need a second machine, reached by ssh, and a suite has none; functional tests of NFS "
    "need none"
)
_IMAGE, _RESULTS = "/usr/share/zfs", "/var/tmp/test_results"


@with_tables
def test_runner(
    own: OriginalOptions,
    paths: Annotated[Strings, Argument(metavar="PATH...", help="Tests, or folders of them.")] = None,
    runfiles: Annotated[str, Option("-c", metavar="runfiles", help="Runfiles to take tests from, in this order.")] = "",
    dryrun: Annotated[bool, Option("-d", help="Only print what would be run.")] = False,
    groups: Annotated[bool, Option("-g", help="A folder with tests is a group; with -w.")] = False,
    testdir: Annotated[str, Option("-i", metavar="testdir", help="Where the tests are.")] = _IMAGE,
    logfile: Annotated[str, Option("-l", metavar="logfile", help="Only tests that failed in this log.")] = "",
    outputdir: Annotated[str, Option("-o", metavar="outputdir", help="Where logs and output go.")] = _RESULTS,
    pre: Annotated[str, Option("-p", metavar="script", help="What runs before each test.")] = "",
    post: Annotated[str, Option("-P", metavar="script", help="What runs after each test.")] = "",
    failsafe: Annotated[str, Option("-s", metavar="script", help="What runs after a test that was killed.")] = "",
    failsafe_user: Annotated[str, Option("-S", metavar="user", help="The user who runs that of -s.")] = "",
    timeout: Annotated[int, Option("-t", min=0, metavar="seconds", help="Seconds that a test may take.")] = 60,
    tags: Annotated[str, Option("-T", metavar="tags", help="Only groups with one of these tags.")] = "",
    user: Annotated[str, Option("-u", metavar="user", help="The user who runs the tests.")] = "",
    template: Annotated[str, Option("-w", metavar="template", help="Write this as a runfile, and run nothing.")] = "",
    pre_user: Annotated[str, Option("-x", metavar="user", help="The user who runs that of -p.")] = "",
    post_user: Annotated[str, Option("-X", metavar="user", help="The user who runs that of -P.")] = "",
) -> None:
    """Run tests as test-runner.py does, with its options, console and output, but in guests.

    PATHs are those of the guest: /usr/share/zfs is the image's, a folder of this machine (-i) is copied there.
    """
    import asyncio
    from dataclasses import replace

    from storlab.cli.suite.as_original import Original, finish_runner, run_original
    from storlab.cli.suite.choose import console_of
    from storlab.suites.adapters.zts import ChosenZts, ZtsOptions
    from storlab.suites.originals import Around, dry_run, failed_only, suite_of_paths
    from storlab.suites.originals import template as as_runfile
    from storlab.suites.run.suite_run import look_at_suite
    from storlab.suites.selection import repeated

    if own.kmemleak:
        raise UserError(_KMEMLEAK)
    if runfiles and paths:
        raise UserError("Extraneous arguments: name runfiles with -c, or paths, not both")
    if not runfiles and not paths:
        raise UserError("nothing to run: name runfiles with -c, or paths of tests")
    log = console_of(Path(logfile)) if logfile else ""
    wanted = [os.path.abspath(path) for path in paths or ()]  # noqa: PTH100 - of the guest, with links of its own
    place, copied = _folder(testdir, wanted)
    here = here_of(own.here, None, own.wipe, own.guests)
    words = tuple(tag.strip() for tag in tags.split(",") if tag.strip())
    around = Around(pre, pre_user, post, post_user, failsafe, failsafe_user, user, timeout, words)

    def choose(name: str, read: Sequence[Runfile], installed: Installed) -> Suite:
        if wanted:
            chosen = suite_of_paths(name, wanted, around, installed, place, grouped=groups)
        else:
            chosen = _tagged(name, read, installed, place, tags)
        if log:
            chosen = failed_only(chosen, log, logfile)
        return repeated(chosen, own.iterations)

    options = ZtsOptions(kmsg=own.kmsg)
    if here is not None:
        options = replace(options, runner=here.user, plain=not _of_image(place))
    asked = own.asked(
        _runfiles(runfiles) if runfiles else (),
        here,
        tests=copied,
        allow_missing=own.allow_missing,
        adapter=ChosenZts(place, options, choose),
        title=runfiles or ",".join(wanted),
    )
    if dryrun or template:
        found = asyncio.run(look_at_suite(asked, warn))[0]
        if template:
            Path(template).write_text(as_runfile(found), "utf-8")
        else:
            show(dry_run(found, f"{outputdir}/{datetime.now():%Y%m%dT%H%M%S}"))
        return
    if own.timeout_debug:
        warn(f"Note: {_TIMEOUT_DEBUG}")
    original = Original(Path(os.path.abspath(outputdir)), own)  # noqa: PTH100 - links are kept
    finish_runner(run_original(asked, original, own.out))


@with_tables
def zfs_tests(
    own: OriginalOptions,
    verbose: Annotated[bool, Option("-v", help="Say how the run is set up.")] = False,
    cleanup_all: Annotated[
        bool, Option("-x", help="Remove what earlier runs of Storlab left here; a guest has nothing.")
    ] = False,
    keep: Annotated[
        bool, Option("-k", help="At a failure, a shell in the guest before anything is cleaned up.")
    ] = False,
    files: Annotated[bool, Option("-f", help="Pools on files in place of disks.")] = False,
    stack_tracer: Annotated[bool, Option("-S", help="Watch the depth of kernel stacks; slow.")] = False,
    constrained: Annotated[bool, Option("-c", help="Only create the constrained path, and say what it lacks.")] = False,
    rerun: Annotated[bool, Option("-R", help="Run what failed once more.")] = False,
    nfsfile: Annotated[str, Option("-n", metavar="NFSFILE", help="Refused: there is no second machine.")] = "",
    filedir: Annotated[str, Option("-d", metavar="DIR", help="Where the tests have their files.")] = "",
    size: Annotated[str, Option("-s", metavar="SIZE", help="Size of the files or disks for pools.")] = "4G",
    runfiles: Annotated[str, Option("-r", metavar="RUNFILES", help="Runfiles to take tests from.")] = "",
    single: Annotated[str, Option("-t", metavar="PATH|NAME", help="Only this test.")] = "",
    tags: Annotated[str, Option("-T", metavar="TAGS", help="Only groups with one of these tags; 1/3: a share.")] = "",
    user: Annotated[str, Option("-u", metavar="USER", help="The user who runs the test of -t.")] = "root",
    outputdir: Annotated[str, Option("--outputdir", metavar="DIR", help="Where results go.")] = _RESULTS,
) -> None:
    """Run the ZFS Test Suite as zfs-tests.sh does, with its options, variables, console and output, but in guests."""
    import asyncio
    from dataclasses import replace

    from storlab.cli.clean import clean_all
    from storlab.cli.suite.as_original import Original, finish_zfs_tests, run_original
    from storlab.cli.suite.options import size_of
    from storlab.suites.adapters.zts import STF_SUITE, ChosenZts, ZtsOptions
    from storlab.suites.originals import single_test, tags_of
    from storlab.suites.run.suite_run import look_at_suite
    from storlab.suites.runfile import read_suite
    from storlab.suites.selection import repeated

    if own.kmemleak:
        raise UserError(_KMEMLEAK)
    if single and tags:
        raise UserError("-t and -T are mutually exclusive.")
    here = here_of(own.here, None, own.wipe, own.guests, filedir)
    environment = variables_for(os.environ, nfsfile, here)
    if stack_tracer and here is not None:
        raise UserError("-S: with --here, kernel settings are yours: write 1 to /proc/sys/kernel/stack_tracer_enabled")
    holds = keep and own.guests == 1 and sys.stdin.isatty()
    for note in _notes(os.environ, here, keep=keep and not holds, timeout_debug=own.timeout_debug):
        warn(f"Note: {note}")
    if cleanup_all and here is not None:
        clean_all()
    place = os.path.abspath(filedir or os.environ.get("FILEDIR", "") or "/var/tmp")  # noqa: PTH100 - of the guest
    vdevs = os.environ.get("FILES", "").split() or [f"{place}/file-vdev{number}" for number in range(3)]
    if here is not None:  # the folder gets its name with the run
        vdevs = [f"file-vdev{number}" for number in range(3)]
    named = runfiles or os.environ.get("RUNFILES", "") or "common.run,linux.run"
    vdev_size = size_of(size, "-s")
    if stack_tracer:
        environment["STACK_TRACER"] = "1"
    options = ZtsOptions(place, vdev_size, tuple(vdevs) if files else (), environment, own.kmsg, len(vdevs))
    if here is not None:
        options = replace(options, runner=here.user)
    chosen_tags = tags or "functional"

    def choose(name: str, read: Sequence[Runfile], installed: Installed) -> Suite:
        nonlocal chosen_tags
        if single:
            runfile = single_test(single, user, installed, STF_SUITE)
            return repeated(read_suite(name, [runfile], installed, STF_SUITE), own.iterations)
        chosen_tags = tags_of(chosen_tags, [each.text for each in read])
        return repeated(_tagged(name, read, installed, STF_SUITE, chosen_tags), own.iterations)

    names = () if single else tuple(_runfile(name) for name in named.split(",") if name)
    asked = own.asked(
        names,
        here,
        allow_missing=own.allow_missing,
        adapter=ChosenZts(STF_SUITE, options, choose),
        title=single or named,
        hold=holds,
    )
    if constrained:
        found = asyncio.run(look_at_suite(asked, warn))[1]
        show(f"Missing util(s): {' '.join(found.missing)}")
        return
    shown = {
        "RUNFILES": ",".join(names) or f"{place}/zfs-tests.run",
        "FILES": " ".join(vdevs),
        "FILESIZE": size,
        "ITERATIONS": str(own.iterations),
        "STACK_TRACER": "yes" if stack_tracer else "no",
    }
    base = Path(outputdir).absolute()
    original = Original(base, own, verbose=verbose, cleaned=cleanup_all, shown=shown, tags=lambda: chosen_tags)
    finish_zfs_tests(asked, original, run_original(asked, original, own.out), rerun=rerun, out=own.out)


def _tagged(name: str, read: Sequence[Runfile], installed: Installed, testdir: str, tags: str) -> Suite:
    from storlab.suites.runfile import read_suite
    from storlab.suites.selection import Selection, select

    words = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if tags and not words:
        raise UserError(f"-T {tags!r}: it names no tag")
    return select(read_suite(name, read, installed, testdir), Selection(tags=" or ".join(words)))


def _folder(testdir: str, paths: Sequence[str]) -> tuple[str, Path | None]:
    """What relative names are below in the guest, and the folder of this machine that is copied to there."""
    place = os.path.abspath(testdir)  # noqa: PTH100 - of the guest
    outside = [path for path in paths if not _of_image(path) and Path(path).exists()]
    if _of_image(place) and outside:
        place = os.path.commonpath([path if Path(path).is_dir() else str(Path(path).parent) for path in outside])
    if _of_image(place) or not Path(place).is_dir():
        return place, None
    if strange := next((path for path in outside if not Path(path).is_relative_to(place)), None):
        raise UserError(f"{strange} is not below {place}, the folder that is copied into guests: name another with -i")
    return place, Path(place)


def _of_image(path: str) -> bool:
    return path == _IMAGE or path.startswith(f"{_IMAGE}/")


def _runfiles(written: str) -> tuple[str, ...]:
    """Of ``-c``: files of this machine, or of the image."""
    names = [name for name in written.split(",") if name]
    for name in names:
        if not _of_image(name) and not Path(name).is_file():
            raise UserError(f"Couldn't read config files: {name}")
    return tuple(dict.fromkeys(names))


def _runfile(name: str) -> str:
    """Of ``-r``: one of the suite's by its name, or a file of this machine."""
    from storlab.suites.originals import RUNFILES

    if name.removesuffix(".run") in RUNFILES:
        return f"{_IMAGE}/runfiles/{name.removesuffix('.run')}.run"
    for path in (name, f"{name}.run"):
        if _of_image(path) or Path(path).is_file():
            return path
    raise UserError(f"Cannot find runfile: {name}")


def variables_for(environment: Mapping[str, str], nfsfile: str, here: Here | None) -> dict[str, str]:
    """What of this shell's variables the tests get. Raises ``UserError`` for those that mean nothing there."""
    if here is None and environment.get("DISKS", "").strip():
        raise UserError(
            "DISKS names disks of this machine, and tests run in guests, which have disks of their own: unset DISKS"
        )
    if here is not None and environment.get("FILES", "").strip():
        raise UserError("FILES: with --here, files for pools lie in a folder of the run's own: unset FILES")
    if nfsfile:
        raise UserError(f"-n: {_NFS}: leave out -n")
    given = sorted(name for name, value in environment.items() if value.strip() and name.partition("_")[0] == "NFS")
    if given:
        raise UserError(f"{', '.join(given)}: {_NFS}: unset {' '.join(given)}")
    kept = ("KEEP", "TESTFAIL_CALLBACKS")
    return {name: value for name, value in environment.items() if value and (name in kept or name.startswith("PERF_"))}


def _notes(environment: Mapping[str, str], here: Here | None, *, keep: bool, timeout_debug: bool) -> list[str]:
    found = []
    if environment.get("LOOPBACKS", "").strip():
        found.append(
            "LOOPBACKS is left alone: name loop devices in DISKS"
            if here is not None
            else "LOOPBACKS is left alone: guests have disks of their own, and loop devices of this machine stay"
        )
    if keep:
        found.append(
            "-k opens a shell at a failure only on a terminal, with one guest at a time; nothing else is kept but what "
            "tests printed, in the run's folder"
        )
    if timeout_debug:
        found.append(_TIMEOUT_DEBUG)
    return found


@with_tables
def check(
    checkout: Annotated[Path, Argument(metavar="CHECKOUT", help="A folder with `check` and `tests`.")],
    own: GuestOptions,
    showing: Showing,
    tests: Annotated[Strings, Argument(metavar="TEST...", help="Such as generic/001; by default all.")] = None,
    group: Annotated[Strings, Option("-g", metavar="GROUP", help="Only tests of this group.")] = None,
    without_group: Annotated[Strings, Option("-x", metavar="GROUP", help="No tests of this group.")] = None,
    without: Annotated[Strings, Option("-e", metavar="TEST", help="Not this test.")] = None,
    without_file: Annotated[Strings, Option("-E", metavar="FILE", help="Not the tests in this file.")] = None,
    without_inside: Annotated[
        Strings, Option("-X", metavar="NAME", help="Not those in the file of this name beside the tests.")
    ] = None,
    section: Annotated[str, Option("-s", metavar="SECTION", help="Section of the checkout's local.config.")] = "",
    iterations: Annotated[int, Option("-i", min=1, max=10_000, help="All of it N times.")] = 1,
    until: Annotated[int, Option("-I", min=0, max=10_000, help="N times, but stop once a test fails.")] = 0,
    again: Annotated[int, Option("-L", min=0, max=100, help="A test that fails up to N times more.")] = 0,
    filesystem: Annotated[str, Option("--fstyp", metavar="TYPE", help="What TEST_DEV is formatted with.")] = "ext4",
    timeout: Annotated[str, Option("--timeout", metavar="TIME", help="Time-out of each test; 0 for none.")] = "10m",
    size: Annotated[str, Option("--disk-size", metavar="SIZE", help="Size of each of a guest's three disks.")] = "4G",
) -> None:
    """Run a checkout of xfstests or blktests in guests, one test at a time, with disks as TEST_DEV, SCRATCH_DEV.

    The checkout is copied into each guest as it is, so it must be built for the guest.
    """
    import asyncio

    from storlab.base.errors import UserError
    from storlab.cli.options import new_folder
    from storlab.cli.suite.choose import time_of
    from storlab.cli.suite.options import size_of
    from storlab.suites.adapters.check import Check, CheckOptions
    from storlab.suites.places.kinds import OWN_TESTS
    from storlab.suites.run.own_files import choose, words
    from storlab.suites.run.suite_run import run_suite
    from storlab.suites.suite_file import CheckTable

    if until and iterations > 1:
        raise UserError("-i and -I are mutually exclusive: both say how often")
    if not filesystem.isalnum():
        raise UserError(f"--fstyp {filesystem}: it is a type of file system, such as xfs")
    wanted = CheckTable.model_construct(
        tests=tests or [],
        groups=words(group),
        exclude_groups=words(without_group),
        exclude=words(without),
        exclude_files=without_file or [],
        exclude_lists=without_inside or [],
    )
    chosen, limit = tuple(choose(checkout, wanted)), time_of(timeout, "--timeout")
    options = CheckOptions(chosen, section, filesystem, limit, size_of(size, "--disk-size"))
    asked = own.asked(
        (),
        tests=checkout,
        retries=again,
        adapter=Check(OWN_TESTS, options),
        title=checkout.resolve().name,
        iterations=until or iterations,
        until_failure=until > 0,
    )
    folder = own.out or new_folder("check")
    showing.run(folder, lambda watch: asyncio.run(run_suite(asked, folder, watch)))
