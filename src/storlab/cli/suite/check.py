"""``storlab suite check``: a checkout of xfstests or blktests, with the options of its own ``check``, in guests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from storlab.cli.options import Strings
from storlab.cli.suite.options import GuestOptions, Showing, with_tables


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

    from storlab.cli.options import new_folder
    from storlab.cli.suite.choose import size_of, time_of
    from storlab.errors import UserError
    from storlab.suites.adapters.check import Check, CheckOptions
    from storlab.suites.places.guest import OWN_TESTS
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
