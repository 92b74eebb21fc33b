"""``storlab suite check``: a checkout of xfstests or blktests, with the options of its own ``check``, in guests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from storlab.cli.options import Json, Quiet, Shared, Strings, Turn, Wait
from storlab.cli.suite.kernel import Kernel, KernelModules, Rootfs, own_kernel_of
from storlab.cli.suite.originals import USUAL_CPUS, USUAL_MEMORY, Cpus, Guests, Memory, Out, Scale


def check(
    checkout: Annotated[Path, Argument(metavar="CHECKOUT", help="A folder with `check` and `tests`.")],
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
    guests: Guests = 1,
    cpus: Cpus = USUAL_CPUS,
    memory: Memory = USUAL_MEMORY,
    kernel: Kernel = None,
    kernel_modules: KernelModules = None,
    rootfs: Rootfs = None,
    timeout_scale: Scale = None,
    out: Out = None,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a checkout of xfstests or blktests in guests, one test at a time, with disks as TEST_DEV, SCRATCH_DEV.

    The checkout is copied into each guest as it is, so it must be built for the guest.
    """
    import asyncio

    from storlab.cli.new_folder import new_folder
    from storlab.cli.suite.choose import size_of, time_of
    from storlab.cli.suite.finish import finish
    from storlab.errors import UserError
    from storlab.suites.adapters.check import Check, CheckOptions
    from storlab.suites.places.guest import OWN_TESTS
    from storlab.suites.run.asked import Asked
    from storlab.suites.run.checkout import Wanted, choose, words
    from storlab.suites.run.suite_run import run_suite

    if until and iterations > 1:
        raise UserError("-i and -I are mutually exclusive: both say how often")
    if not filesystem.isalnum():
        raise UserError(f"--fstyp {filesystem}: it is a type of file system, such as xfs")
    wanted = Wanted(
        tuple(tests or ()), words(group or ()), words(without_group or ()), words(without or ()),
        tuple(map(Path, without_file or ())), tuple(without_inside or ()),
    )  # fmt: skip
    options = CheckOptions(
        tuple(choose(checkout, wanted)),
        section,
        filesystem,
        time_of(timeout, "--timeout"),
        size_of(size, "--disk-size"),
    )
    asked = Asked(
        (), tests=checkout, guests=guests, cpus=cpus, memory=size_of(memory), scale=timeout_scale, retries=again,
        adapter=Check(OWN_TESTS, options), title=checkout.resolve().name, iterations=until or iterations,
        until_failure=until > 0, kernel=own_kernel_of(kernel, kernel_modules, rootfs),
    )  # fmt: skip
    folder = out or new_folder("check")
    with Turn(wait, shared).on_machine(folder):
        finish(folder, lambda watch: asyncio.run(run_suite(asked, folder, watch)), quiet=quiet, json=json)
