"""The options that several commands of ``storlab suite`` have, in tables: a command takes a table as one parameter.

This module is loaded by ``storlab --help``: what takes time to load, functions load.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Option

from storlab.base.errors import UserError
from storlab.cli.options import Json, Quiet, Shared, Strings, Turn, Wait

if TYPE_CHECKING:
    from storlab.suites.records.folder import Here, OwnKernel
    from storlab.suites.run.execution import Ended, Watch
    from storlab.suites.run.plan import Asked

USUAL_MEMORY = "4G"  # suite_file.MEMORY, which is not loaded for a help text
USUAL_CPUS = 2  # suite_file.CPUS, likewise


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    tables = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}
    parameters = []
    for each in inspect.signature(command).parameters.values():
        if each.name in tables:
            types = get_type_hints(tables[each.name], include_extras=True)
            options = ((field.name, types[field.name], field.default) for field in fields(tables[each.name]))
        else:
            options = ((name, hints[name], each.default) for name in (each.name,))
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, kind, default in options
        ]

    def called(**values: Any) -> None:
        given = {
            name: table(**{each.name: values.pop(each.name) for each in fields(table)})
            for name, table in tables.items()
        }
        command(**values, **given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


HereName = Annotated[
    str,
    Option(
        "--here", metavar="NAME", help="Run on this machine, called NAME, not in guests; everything on it may be lost."
    ),
]
Wipe = Annotated[Strings, Option("--wipe", metavar="PATH", help="With --here: a disk whose data may be lost.")]


@dataclass(frozen=True)
class Boots:
    """A kernel of the user's own."""

    kernel: Annotated[
        Path | None,
        Option(
            "--kernel", metavar="FILE", help="What guests boot: a bzImage or vmlinux; by default the image's kernel."
        ),
    ] = None
    kernel_modules: Annotated[
        Path | None,
        Option("--kernel-modules", metavar="DIR", help="That kernel's modules: …/lib/modules/RELEASE."),
    ] = None
    rootfs: Annotated[
        Path | None,
        Option("--rootfs", metavar="PATH", help="A root for it: a folder, or EROFS, ext4, squashfs; else the image's."),
    ] = None

    def own_kernel(self, here: str = "") -> OwnKernel | None:
        """What guests boot; ``None`` for what the image has. Raises ``UserError``."""
        from storlab.suites.records.folder import OwnKernel

        tree = getattr(self, "tree", None)
        options = {
            "--kernel": self.kernel,
            "--kernel-modules": self.kernel_modules,
            "--rootfs": self.rootfs,
            "--tree": tree,
        }
        named = [option for option, path in options.items() if path is not None]
        if here and named:
            raise UserError(
                f"{named[0]}: with --here, tests run on the kernel, the root and the ZFS that this machine runs"
            )
        if self.kernel is None and (self.kernel_modules or self.rootfs) is not None:
            raise UserError(f"{named[0]} goes with a kernel of your own: write --kernel, too")
        if not named:
            return None
        return OwnKernel(*(None if path is None else str(path.resolve()) for path in options.values()))


@dataclass(frozen=True)
class BootsZfs(Boots):
    """And ZFS of the user's own."""

    tree: Annotated[
        Path | None,
        Option(
            "--tree",
            metavar="DIR",
            help="A source tree of OpenZFS, built: its modules, commands and tests, uninstalled.",
        ),
    ] = None


@dataclass(frozen=True)
class GuestOptions(Boots):
    """Guests of commands that take the options of other programs, too."""

    guests: Annotated[int, Option("--guests", min=1, max=256, help="Guests that run tests side by side.")] = 1
    cpus: Annotated[int, Option("--cpus", min=1, max=255, help="Virtual CPUs of each guest.")] = USUAL_CPUS
    memory: Annotated[str, Option("--memory", metavar="SIZE", help="Memory of each guest.")] = USUAL_MEMORY
    timeout_scale: Annotated[
        float | None, Option("--timeout-scale", min=0.01, max=1000, help="Factor for all time-outs.")
    ] = None
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for Storlab's own records.")] = None

    def asked(self, names: tuple[str, ...], here: Here | None = None, **more: Any) -> Asked:
        """What is to be run, with ``more`` of the fields of ``Asked``. Raises ``UserError``."""
        from storlab.suites.run.plan import Asked

        return Asked(
            names,
            guests=self.guests,
            cpus=self.cpus,
            memory=size_of(self.memory),
            scale=self.timeout_scale,
            kernel=self.own_kernel("" if here is None else here.machine),
            here=here,
            **more,
        )


@dataclass(frozen=True)
class OriginalOptions(GuestOptions, BootsZfs):
    """What test-runner.py and zfs-tests.sh have in common, and where their tests run here."""

    quiet: Annotated[bool, Option("-q", help="Print only tests that do not pass.")] = False
    debug: Annotated[bool, Option("-D", help="Print what tests print, as it comes.")] = False
    iterations: Annotated[int, Option("-I", min=1, max=10_000, help="Run everything this many times.")] = 1
    kmsg: Annotated[bool, Option("-K", help="Put the name of each test into the kernel's log.")] = False
    kmemleak: Annotated[bool, Option("-m", help="Refused: guests have no kmemleak.")] = False
    timeout_debug: Annotated[bool, Option("-O", help="Changes nothing: what a test hung in is kept in killed.txt.")] = (
        False
    )
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="Run tests whose programs the image lacks, as they do.")
    ] = False
    here: HereName = ""
    wipe: Wipe = None


@dataclass(frozen=True)
class Choice:
    """Which tests of a suite."""

    tests: Annotated[
        Path | None, Option("--tests", "-i", metavar="DIR", help="A folder of your own tests, copied into each guest.")
    ] = None
    test: Annotated[
        Strings, Option("--test", metavar="GLOB", help="Only tests whose path ends like this: create*, acl/*.")
    ] = None
    exclude: Annotated[
        Strings, Option("--exclude", metavar="GLOB|@FILE", help="Not these tests; @FILE has one pattern a line.")
    ] = None
    tags: Annotated[
        str,
        Option(
            "--tags", "-T", metavar="EXPRESSION", help="Only groups with these tags: 'acl, zvol', 'acl and not slow'."
        ),
    ] = ""
    shard: Annotated[str, Option("--shard", metavar="K/N", help="Only the share K of N, each about equally long.")] = (
        "1/1"
    )
    history: Annotated[
        list[Path] | None,
        Option("--history", metavar="RUN|FOLDER", help="Earlier runs, whose times are used to balance the shares."),
    ] = None


@dataclass(frozen=True)
class Showing:
    """How a command comes by this machine, and what it shows of a run."""

    wait: Wait = False
    shared: Shared = False
    quiet: Quiet = False
    json: Json = False

    def run(self, folder: Path, execute: Callable[[Watch], Ended]) -> None:
        """Run it on this machine, show what came of it, and exit."""
        from storlab.cli.suite.finish import finish

        with Turn(self.wait, self.shared).on_machine(folder):
            finish(folder, execute, quiet=self.quiet, json=self.json)


def here_of(name: str, disks: Strings, wipe: Strings, guests: int, files: str = "") -> Here | None:
    """What was asked for of this machine, with what the shell's variables say; ``None`` for guests.

    ``DISKS``, ``FILEDIR`` and ``KEEP`` mean what they do for ``zfs-tests.sh``. Raises ``UserError``.
    """
    from storlab.suites.records.folder import FILES, Here

    if not name:
        if disks or wipe:
            raise UserError("--disk and --wipe: guests have disks of their own; these are for --here")
        return None
    if guests > 1:
        raise UserError("--here: there is one machine, so leave out --guests")
    named = [f"/dev/{each.removeprefix('/dev/')}" for each in os.environ.get("DISKS", "").split()]
    chosen = tuple(os.path.abspath(each) for each in disks or named)  # noqa: PTH100 - a link may be the stable name
    allowed = tuple(os.path.abspath(each) for each in wipe or ())  # noqa: PTH100 - as above
    if strange := next((each for each in allowed if each not in chosen), None):
        raise UserError(f"--wipe {strange}: it is none of the disks that tests get: name it with --disk, too")
    if twice := next((each for each in chosen if chosen.count(each) > 1), None):
        raise UserError(f"--disk {twice}: it is named twice")
    folder = os.path.abspath(files or os.environ.get("FILEDIR", "") or FILES)  # noqa: PTH100 - it need not be there
    user = os.environ.get("SUDO_USER", "") or "root"
    return Here(name, folder, chosen, allowed, tuple(os.environ.get("KEEP", "").split()), user)


def size_of(text: str, option: str = "--memory") -> int:
    from pydantic import TypeAdapter, ValidationError

    from storlab.base.units import Size

    try:
        return TypeAdapter[int](Size).validate_python(text)
    except ValidationError:
        raise UserError(f"{option} {text}: write a size, such as 1G") from None
