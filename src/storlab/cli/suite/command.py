"""``storlab suite run``, ``resume``, ``list``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.cli.options import Allow, Json, Output, Quiet, RunPath, Shared, Strings, Turn, Wait, offered
from storlab.cli.output import show, show_json, show_rendered, warn, write_output
from storlab.cli.remote.option import travels
from storlab.cli.suite.bisect import bisect
from storlab.cli.suite.check import check
from storlab.cli.suite.compare import compare
from storlab.cli.suite.compare import history as history_
from storlab.cli.suite.finish import finish, keep_table
from storlab.cli.suite.here import Disks, HereName, Wipe, here_of
from storlab.cli.suite.hold import ShellOnFailure, held
from storlab.cli.suite.kernel import Kernel, KernelModules, Rootfs, Tree, own_kernel_of
from storlab.cli.suite.originals import USUAL_CPUS, USUAL_MEMORY, test_runner, zfs_tests
from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.suites.run.asked import Asked
    from storlab.suites.run.execution import Ended, Watch

suite = typer.Typer(
    name="suite",
    no_args_is_help=True,
    help="Run test suites, such as that of ZFS, in virtual machines.",
    epilog="Exit status: 0 all results as expected, 3 unexpected results or no test executed, 4 a test that was asked "
    "for has no result, 2 a usage error, 1 an internal error, 130 interrupted.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FORMATS = ("text", "zts", "md", "html", "junit", "ktap", "json")
Names = Annotated[
    list[str],
    Argument(
        metavar="SUITE...",
        help="zts, zts-sanity, zts-perf, a runfile of the image by its name, or the path of a runfile or suite file.",
    ),
]
SomeNames = Annotated[Strings, Argument(metavar="SUITE...", help="As above; with --replay, those of that run.")]
Tests = Annotated[
    Path | None,
    Option("--tests", "-i", metavar="DIR", help="A folder of your own tests, copied into each guest."),
]
Test = Annotated[
    Strings, Option("--test", metavar="GLOB", help="Only tests whose path ends like this: create*, acl/*.")
]
Exclude = Annotated[
    Strings, Option("--exclude", metavar="GLOB|@FILE", help="Not these tests; @FILE has one pattern a line.")
]
Tags = Annotated[
    str,
    Option("--tags", "-T", metavar="EXPRESSION", help="Only groups with these tags: 'acl, zvol', 'acl and not slow'."),
]
Shard = Annotated[str, Option("--shard", metavar="K/N", help="Only the share K of N, each about equally long.")]
History = Annotated[
    list[Path] | None,
    Option("--history", metavar="RUN|FOLDER", help="Earlier runs, whose times are used to balance the shares."),
]
Limit = Annotated[str, Option("--limit", metavar="TIME", help="Start no test after this time, such as 10m.")]
Expect = Annotated[
    Path | None,
    Option("--expect", metavar="FILE", help="A list in TOML of what may fail, and why: reference/suite-file.md."),
]


@suite.command()
@travels("suite run")
def run(
    names: SomeNames = None,
    tests: Tests = None,
    guests: Annotated[int, Option("--guests", min=1, max=256, help="Guests that run tests side by side.")] = 1,
    test: Test = None,
    exclude: Exclude = None,
    tags: Tags = "",
    shard: Shard = "1/1",
    history: History = None,
    failed_of: Annotated[
        Path | None, Option("--failed-of", metavar="RUN|LOG", help="Only tests that did not pass there.")
    ] = None,
    retries: Annotated[int, Option("--retries", min=0, max=100, help="How often a failing test is retried.")] = 0,
    timeout_scale: Annotated[
        float | None,
        Option("--timeout-scale", min=0.01, max=1000, help="Factor for all time-outs; by default measured."),
    ] = None,
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="Run tests even if the guest image lacks a program that they call.")
    ] = False,
    cpus: Annotated[
        int | None, Option("--cpus", min=1, max=255, help=f"Virtual CPUs of each guest: {USUAL_CPUS} by default.")
    ] = None,
    memory: Annotated[
        str | None, Option("--memory", metavar="SIZE", help=f"Memory of each: {USUAL_MEMORY} by default.")
    ] = None,
    disk_size: Annotated[
        str, Option("--disk-size", metavar="SIZE", help="Size of each disk of the ZFS Test Suite: 4G by default.")
    ] = "",
    kernel: Kernel = None,
    kernel_modules: KernelModules = None,
    rootfs: Rootfs = None,
    tree: Tree = None,
    shuffle: Annotated[bool, Option("--shuffle", help="Groups, and the tests of each, in a random order.")] = False,
    seed: Annotated[
        int | None, Option("--seed", min=0, help="Seed of the random order, such as that of an earlier run.")
    ] = None,
    replay: Annotated[
        str, Option("--replay", metavar="RUN[:GUEST]", help="Tests in the order in which a guest ran them there.")
    ] = "",
    until_failure: Annotated[bool, Option("--until-failure", help="Repeat everything until a test fails.")] = False,
    expect: Expect = None,
    limit: Limit = "",
    shell_on_failure: ShellOnFailure = False,
    debug: Annotated[
        bool, Option("--debug", help="As --shell-on-failure, with what a debugger of the guest's kernel attaches to.")
    ] = False,
    here: HereName = "",
    disk: Disks = None,
    wipe: Wipe = None,
    allow: Allow = None,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a suite in guests; if a guest is lost, that is the test's result, and the rest runs in another.

    With --here, on this machine itself.
    """
    import asyncio
    import os

    from storlab.cli.new_folder import new_folder
    from storlab.cli.suite.choose import Earlier, asked_for, in_order_asked, past_in, replay_of
    from storlab.cli.suite.measuring import measuring
    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.suites.run.own_files import read_own_expectations
    from storlab.suites.run.suite_run import run_suite

    permissions = Permissions(allowed=parse_allowed(allow or ()))
    earlier = Earlier()
    own_kernel = own_kernel_of(kernel, kernel_modules, rootfs, here, tree)
    if replay:
        earlier = replay_of(replay, permissions, names=names, tests=tests, kernel=own_kernel)
    asked = asked_for(
        names or list(earlier.names),
        tests=tests or earlier.tests,
        test=test,
        exclude=exclude,
        tags=tags,
        shard=shard,
        failed_of=failed_of,
        past=past_in(history),
        memory=earlier.memory if memory is None else memory,
        cpus=earlier.cpus if cpus is None else cpus,
        kernel=own_kernel or earlier.kernel,
        permissions=permissions,
    )
    timeout_scale = earlier.scale if timeout_scale is None else timeout_scale
    asked = _with(asked, guests=guests, retries=retries, scale=timeout_scale, allow_missing=allow_missing)
    asked = in_order_asked(asked, earlier, shuffle=shuffle, seed=seed, limit=limit)
    own = () if expect is None else read_own_expectations(expect)
    asked = _with(asked, until_failure=until_failure, own=own, here=here_of(here, disk, wipe, guests))
    asked = held(asked, shell=shell_on_failure, debug=debug)
    if here:  # whatever a suite file says
        asked = _with(asked, kernel=None)
    asked = measuring(asked, os.environ, disk_size)
    if asked.seed is not None and not quiet and not json:
        warn(f"Random order with --seed {asked.seed}")
    folder = out or new_folder(Path(asked.names[0]).stem or "suite")
    with Turn(wait, shared).on_machine(folder):
        finish(folder, lambda watch: asyncio.run(run_suite(asked, folder, watch)), quiet=quiet, json=json)


@suite.command()
@travels("suite resume")
def resume(
    folder: RunPath,
    limit: Limit = "",
    here: HereName = "",
    allow: Allow = None,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run the tests of an interrupted or limited run that have no result yet.

    A group that was under way begins again, after its set-up, with the tests that are left of it. A run until a failure
    has further iterations. What its folder names of this machine must be allowed, and --here said again.
    """
    import asyncio

    from storlab.cli.suite.choose import limit_of
    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.suites.run.suite_run import resume_suite

    seconds = limit_of(limit)
    permissions = Permissions(allowed=parse_allowed(allow or ()))

    def execute(watch: Watch) -> Ended:
        return asyncio.run(resume_suite(folder, watch, seconds, permissions, here))

    with Turn(wait, shared).on_machine(folder):
        finish(folder, execute, quiet=quiet, json=json)


@suite.command("list")
@travels("suite list")
def list_(
    names: Names,
    tests: Tests = None,
    test: Test = None,
    exclude: Exclude = None,
    tags: Tags = "",
    shard: Shard = "1/1",
    history: History = None,
    kernel: Kernel = None,
    kernel_modules: KernelModules = None,
    rootfs: Rootfs = None,
    tree: Tree = None,
    allow: Allow = None,
    wants: Annotated[
        bool, Option("--wants", help="Only what suite files want of this machine, and what permits that.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what a suite consists of: its groups and tests, and what is expected of them. Nothing of it is run.

    With --history, also when each test ran last, how long it takes, and how often it passed.
    """
    import asyncio

    from storlab.cli.plan.wants import show_wants
    from storlab.cli.suite.choose import asked_for, past_in
    from storlab.cli.suite.listing import listed, listed_json
    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.suites.run.own_files import wants_of_files
    from storlab.suites.run.suite_run import look_at_suite

    permissions = Permissions(allowed=parse_allowed(allow or ()))
    if wants:
        show_wants(wants_of_files(names), permissions, as_json=json)
        return
    past = past_in(history)
    own = own_kernel_of(kernel, kernel_modules, rootfs, tree=tree)
    asked = asked_for(
        names,
        tests=tests,
        test=test,
        exclude=exclude,
        tags=tags,
        shard=shard,
        past=past,
        kernel=own,
        permissions=permissions,
    )
    chosen, found, lacking = asyncio.run(look_at_suite(asked, warn))
    if json:
        show_json(listed_json(chosen, found.expectations, lacking, past))
        return
    for line in listed(chosen, found.expectations, lacking, past):
        show(line)


@suite.command()
@travels("suite report")
def report(
    folders: Annotated[
        list[Path], Argument(metavar="RUN...", help="A run's folder; those of all shares are one report.")
    ],
    format_: Annotated[
        str, Option("--format", "-f", metavar="|".join(FORMATS), autocompletion=offered(*FORMATS), help="Format.")
    ] = "text",
    expect: Expect = None,
    output: Output = None,
) -> None:
    """Report on a run of a suite, whole or not, or on runs of its shares (--shard) as one.

    --expect takes the place of the list that they were run with.
    """
    from dataclasses import replace

    from msgspec import structs

    from storlab.suites.records import merged_suite_runs
    from storlab.suites.report.formats import render
    from storlab.suites.run.own_files import read_own_expectations

    if format_ not in FORMATS:
        raise UserError(f"--format {format_}: it is one of {', '.join(FORMATS)}")
    known = merged_suite_runs(folders)
    if len(folders) == 1:
        keep_table(known)
    if expect is not None:
        known = replace(known, asked=structs.replace(known.asked, own=read_own_expectations(expect)))
    text = render(known, format_)
    if output is None:
        show_rendered(text, format_)
    else:
        write_output(output, text)


suite.command("test-runner")(test_runner)
suite.command("zfs-tests")(zfs_tests)


def _with(asked: Asked, **changes: object) -> Asked:
    from dataclasses import replace

    return replace(asked, **changes)  # type: ignore[arg-type]


suite.command()(travels("suite check")(check))
suite.command()(bisect)
suite.command()(compare)
suite.command("history")(history_)
