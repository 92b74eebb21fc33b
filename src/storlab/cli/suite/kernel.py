"""``--kernel`` and ``--tree``: a suite in guests that boot the user's own kernel, or with the user's own ZFS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.suites.records.own_kernel import OwnKernel

Kernel = Annotated[
    Path | None,
    Option("--kernel", metavar="FILE", help="What guests boot: a bzImage or vmlinux; by default the image's kernel."),
]
KernelModules = Annotated[
    Path | None,
    Option("--kernel-modules", metavar="DIR", help="That kernel's modules: …/lib/modules/RELEASE."),
]
Rootfs = Annotated[
    Path | None,
    Option("--rootfs", metavar="PATH", help="A root for it: a folder, or EROFS, ext4, squashfs; else the image's."),
]
Tree = Annotated[
    Path | None,
    Option(
        "--tree", metavar="DIR", help="A source tree of OpenZFS, built: its modules, commands and tests, uninstalled."
    ),
]


def own_kernel_of(
    kernel: Path | None, modules: Path | None, rootfs: Path | None, here: str = "", tree: Path | None = None
) -> OwnKernel | None:
    from storlab.suites.records.own_kernel import OwnKernel

    options = {"--kernel": kernel, "--kernel-modules": modules, "--rootfs": rootfs, "--tree": tree}
    named = [option for option, path in options.items() if path is not None]
    if here and named:
        raise UserError(
            f"{named[0]}: with --here, tests run on the kernel, the root and the ZFS that this machine runs"
        )
    if kernel is None and (modules or rootfs) is not None:
        raise UserError(f"{named[0]} goes with a kernel of your own: write --kernel, too")
    return OwnKernel(*(None if path is None else str(path.resolve()) for path in options.values())) if named else None
