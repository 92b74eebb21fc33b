"""``storlab suite run``, ``resume``, ``list``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Allow, Json, Output, RunPath, Strings, offered
from storlab.cli.output import show, show_json, show_rendered, warn, write_output
from storlab.cli.remote.option import travels
from storlab.cli.suite.bisect import bisect
from storlab.cli.suite.compare import compare, history
from storlab.cli.suite.finish import keep_table
from storlab.cli.suite.options import (
    USUAL_CPUS,
    USUAL_MEMORY,
    BootsZfs,
    Choice,
    HereName,
    Showing,
    Wipe,
    here_of,
    with_tables,
)
from storlab.cli.suite.originals import check, test_runner, zfs_tests

if TYPE_CHECKING:
    from storlab.run.permissions import Permissions

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
Limit = Annotated[str, Option("--limit", metavar="TIME", help="Start no test after this time, such as 10m.")]
Expect = Annotated[
    Path | None,
    Option("--expect", metavar="FILE", help="A list in TOML of what may fail, and why: reference/suite-file.md."),
]


@suite.command()
@travels("suite run")
@with_tables
def run(
    choice: Choice,
    boots: BootsZfs,
    showing: Showing,
    names: Annotated[Strings, Argument(metavar="SUITE...", help="As above; with --replay, those of that run.")] = None,
    guests: Annotated[int, Option("--guests", min=1, max=256, help="Guests that run tests side by side.")] = 1,
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
    shell_on_failure: Annotated[
        bool,
        Option(
            "--shell-on-failure", help="When a test fails, open a shell in its guest before anything is cleaned up."
        ),
    ] = False,
    debug: Annotated[
        bool, Option("--debug", help="As --shell-on-failure, with what a debugger of the guest's kernel attaches to.")
    ] = False,
    here: HereName = "",
    disk: Annotated[
        Strings, Option("--disk", metavar="PATH", help="With --here: an empty disk for tests; by default loop devices.")
    ] = None,
    wipe: Wipe = None,
    allow: Allow = None,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
) -> None:
    """Run a suite in guests; if a guest is lost, that is the test's result, and the rest runs in another.

    With --here, on this machine itself.
    """
    import asyncio
    import os
    import secrets
    from dataclasses import replace

    from storlab.cli.options import new_folder
    from storlab.cli.suite.choose import Earlier, asked_for, limit_of, past_in, replay_of
    from storlab.cli.suite.measuring import measuring
    from storlab.suites.run.own_files import read_own_expectations
    from storlab.suites.run.suite_run import run_suite

    permissions = _permissions(allow)
    kernel = boots.own_kernel(here)
    earlier = replay_of(replay, permissions, names, choice.tests, kernel) if replay else Earlier()
    asked = asked_for(
        names or (),
        choice,
        earlier=earlier,
        failed_of=failed_of,
        past=past_in(choice.history),
        memory=memory,
        cpus=cpus,
        kernel=kernel,
        permissions=permissions,
    )
    drawn = secrets.randbelow(2**31) if shuffle and seed is None else seed
    if earlier.order and (guests > 1 or drawn is not None):
        raise UserError("--replay repeats the order of one guest: leave out --guests, --shuffle and --seed")
    asked = replace(
        asked,
        guests=guests,
        retries=retries,
        scale=asked.scale if timeout_scale is None else timeout_scale,
        allow_missing=allow_missing,
        seed=drawn,
        limit=limit_of(limit),
        until_failure=until_failure,
        own=() if expect is None else read_own_expectations(expect),
        here=here_of(here, disk, wipe, guests),
        kernel=None if here else asked.kernel,  # whatever a suite file says
        hold=shell_on_failure or debug,
        debug=debug,
    )
    if asked.hold and guests > 1:
        option = "--debug" if debug else "--shell-on-failure"
        raise UserError(f"{option}: there is one terminal for shells, so leave out --guests")
    if debug and here:
        raise UserError("--debug: a debugger attaches to a guest's kernel, and not to this machine's: leave out --here")
    asked = measuring(asked, os.environ, disk_size)
    if asked.seed is not None and not showing.quiet and not showing.json:
        warn(f"Random order with --seed {asked.seed}")
    folder = out or new_folder(Path(asked.names[0]).stem or "suite")
    showing.run(folder, lambda watch: asyncio.run(run_suite(asked, folder, watch)))


@suite.command()
@travels("suite resume")
@with_tables
def resume(folder: RunPath, showing: Showing, limit: Limit = "", here: HereName = "", allow: Allow = None) -> None:
    """Run the tests of an interrupted or limited run that have no result yet.

    A group that was under way begins again, after its set-up, with the tests that are left of it. A run until a failure
    has further iterations. What its folder names of this machine must be allowed, and --here said again.
    """
    import asyncio

    from storlab.cli.suite.choose import limit_of
    from storlab.suites.run.suite_run import resume_suite

    seconds, permissions = limit_of(limit), _permissions(allow)
    showing.run(folder, lambda watch: asyncio.run(resume_suite(folder, watch, seconds, permissions, here)))


@suite.command("list")
@travels("suite list")
@with_tables
def list_(
    names: Names,
    choice: Choice,
    boots: BootsZfs,
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

    from storlab.cli.plan.view import show_wants
    from storlab.cli.suite.choose import asked_for, past_in
    from storlab.suites.report.listing import listed, listed_json
    from storlab.suites.run.own_files import wants_of_files
    from storlab.suites.run.suite_run import look_at_suite

    permissions = _permissions(allow)
    if wants:
        show_wants(wants_of_files(names), permissions, as_json=json)
        return
    past = past_in(choice.history)
    asked = asked_for(names, choice, past=past, kernel=boots.own_kernel(), permissions=permissions)
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

    from storlab.suites.records.derived import merged_suite_runs
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


def _permissions(allow: Strings) -> Permissions:
    from storlab.run.permissions import Permissions, parse_allowed

    return Permissions(allowed=parse_allowed(allow or ()))


suite.command("test-runner")(test_runner)
suite.command("zfs-tests")(zfs_tests)
suite.command()(travels("suite check")(check))
suite.command()(bisect)
suite.command()(compare)
suite.command("history")(history)
