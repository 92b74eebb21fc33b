"""``storlab image``: build, list and remove what guests boot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from storlab.base.errors import MissingImage, UserError
from storlab.cli.options import Json, Quiet, String, Strings, print_json
from storlab.cli.output import is_drawable, show, warn
from storlab.cli.remote.option import travels
from storlab.cli.status import INTERRUPTED

if TYPE_CHECKING:
    from storlab.images.cache import Listed, Part
    from storlab.report.document import Document
    from storlab.study.study import Study

_MIRROR = "http://deb.debian.org/debian"
_OTHERS = {
    "debian-kernel-": "kernel",
    "mysql-": "program",
    "virtiofsd-": "program",
    "own-kernel-": "own kernel",
    "own-root-": "own root",
    "own-zfs-": "own ZFS build",
}
"""What parts are that belong to no image, by how their names begin. Own ones go by themselves when unused."""


image = typer.Typer(name="image", help="Build, list and remove what guests boot.", no_args_is_help=True)


@image.command("build")
@travels("image build")
def image_build(
    with_: Annotated[
        Strings, Option("--with", metavar="EXTRA", help="What the image should also have: zfs, perf.")
    ] = None,
    mirror: Annotated[str, Option("--mirror", metavar="URL", help="A mirror of Debian.")] = _MIRROR,
    if_missing: Annotated[
        bool, Option("--if-missing", help="Only if there is none yet; then no mirror is asked.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Build a guest image, or what is missing of it.

    A Debian with the newest 6.12 kernel of its backports. Finished parts are used again.
    """
    raise typer.Exit(_build(with_ or [], mirror, if_missing, quiet))


def _build(extras: Sequence[str], mirror: str, if_missing: bool, quiet: bool) -> int:
    import asyncio

    from storlab.images.image import build_image, find_image
    from storlab.report.language.format import duration

    if if_missing:
        with suppress(MissingImage):
            found = find_image(frozenset(extras))
            if not quiet:
                show(f"{found.name} is there")
            return 0
    begin = time.monotonic()
    try:
        with _progress(quiet) as notify:
            image = asyncio.run(build_image(frozenset(extras), notify, mirror))
    except KeyboardInterrupt:
        warn("storlab: interrupted; what was finished is kept, the next build resumes from there")
        return INTERRUPTED
    if not quiet:
        show(f"{image.name} is ready, after {duration(time.monotonic() - begin)}")
    return 0


@contextmanager
def _progress(quiet: bool, doing: str = "building a guest image") -> Iterator[Callable[[str], None]]:
    """A line that changes on a terminal, a line a step elsewhere; on standard error, as all progress."""
    if quiet:
        yield lambda step: None
    elif is_drawable(sys.stderr):
        from rich.text import Text

        from storlab.cli.console import Console

        console = Console(stderr=True, live=True)
        with console.status(doing) as status:
            yield lambda step: status.update(Text(step))
    else:
        yield warn


def build_images(study: Study, quiet: bool) -> int:
    """Build the guest images that a study needs, where absent; returns the exit status."""
    import asyncio

    images, kernels = asyncio.run(_wanted(study))
    for extras in images:
        if status := _build(sorted(extras), _MIRROR, if_missing=True, quiet=quiet):
            return status
    for series in kernels:
        _unpack_kernel(series, _MIRROR, quiet)
    return 0


async def _wanted(study: Study) -> tuple[list[frozenset[str]], list[str]]:
    """What the images of the study's nodes must have, the larger ones first, as they serve for less, too; and the
    series of further kernels.
    """
    from storlab.nodes.needs import together
    from storlab.run.beginning import new_run_id
    from storlab.run.planning.checks import group_needs, place
    from storlab.run.session import open_session

    async with open_session(new_run_id()) as session:
        cells = (await place(study, session.host)).cells
    wanted, kernels = set(), set()
    for cell in cells:
        for name, group in cell.nodes.items():
            needs = together(group_needs(each, name) for each in cells if name in each.nodes)
            if (extras := group.image(needs)) is not None:
                wanted.add(extras)
            if (series := group.kernel_series()) is not None:
                kernels.add(series)
    return sorted(wanted, key=len, reverse=True), sorted(kernels)


@image.command("kernel")
def image_kernel(
    series: Annotated[str, Argument(metavar="SERIES", help="Its first two numbers: 6.1.")],
    mirror: Annotated[str, Option("--mirror", metavar="URL", help="A mirror of Debian.")] = _MIRROR,
    quiet: Quiet = False,
) -> None:
    """Unpack a further kernel of Debian's, which virtual machines boot with `kernel = "debian:SERIES"`.

    The newest of Debian 12 and its backports, into the cache: nothing is installed.
    """
    _unpack_kernel(series, mirror, quiet)


def _unpack_kernel(series: str, mirror: str, quiet: bool) -> None:
    import asyncio

    from storlab.images.parts import unpack_debian_kernel

    with _progress(quiet, "unpacking a kernel") as notify:
        part = asyncio.run(unpack_debian_kernel(series, notify, mirror))
    if not quiet:
        show(f"kernel {part.about.release} is ready")


@image.command("virtiofsd")
@travels("image virtiofsd")
def image_virtiofsd(
    implementation: Annotated[
        Literal["rust", "c"], Option("--implementation", help="rust: the current one. c: of QEMU up to 7.2.")
    ] = "rust",
    mirror: Annotated[str, Option("--mirror", metavar="URL", help="A mirror of Debian.")] = _MIRROR,
    quiet: Quiet = False,
) -> None:
    """Unpack a virtiofsd, which shares folders with virtual machines.

    With its libraries, into the cache: nothing is installed. One that is installed is preferred by studies.
    """
    import asyncio

    from storlab.images.unpacked import UNPACKED, unpack

    with _progress(quiet, "unpacking virtiofsd") as notify:
        part = asyncio.run(unpack(UNPACKED[implementation], notify, mirror))
    if not quiet:
        show(f"virtiofsd {part.about.versions['virtiofsd']} is ready")


@image.command("mysql")
@travels("image mysql")
def image_mysql(
    mirror: Annotated[str, Option("--mirror", metavar="URL", help="A mirror of Debian.")] = _MIRROR,
    quiet: Quiet = False,
) -> None:
    """Unpack a MySQL server, which Debian 12 and 13 do not have.

    Debian sid's with its libraries, into the cache: nothing is installed. A study's `bindir` is preferred.
    """
    import asyncio

    from storlab.images.unpacked import MYSQL, unpack

    with _progress(quiet, "unpacking MySQL") as notify:
        part = asyncio.run(unpack(MYSQL, notify, mirror))
    if not quiet:
        show(f"mysqld {part.about.versions['mysqld']} is ready")


@image.command("list")
@travels("image list")
def image_list(json: Json = False) -> None:
    """List what is in the cache: guest images, unpacked programs, own kernels, data sets of databases."""
    from storlab.images.cache import list_images

    images, others = list_images(), _others()
    if json:
        parts = [{"kind": kind, **_described(part)} for kind, part in others]
        print_json([{"kind": "image", **asdict(image)} for image in images] + parts)
        return
    if not images:
        show("There is no guest image; `storlab image build` makes one.")
    if images or others:
        from storlab.cli.console import show_document

        show_document(_document(images, others))


def _document(images: Sequence[Listed], others: Sequence[tuple[str, Part]]) -> Document:
    from storlab.base.text import grouped
    from storlab.report.document import Document, Fact, Facts, Section, said

    kinds = grouped([("image", _row(image)) for image in images] + [(kind, _part_row(part)) for kind, part in others])
    facts = tuple(
        Facts(f"{kind[:1].upper()}{kind[1:]}s", (("", tuple(Fact(*row) for row in rows)),))
        for kind, rows in kinds.items()
    )
    unused = (
        ()
        if all(image.current for image in images)
        else said("`storlab image remove NAME` frees the space of an image that is not used any more.")
    )
    return Document("What is in the cache", (), (Section("cache", "", (*facts, *unused), titled=False),))


def _others() -> list[tuple[str, Part]]:
    from storlab.images.cache import Cache, cache_folder
    from storlab.layers.database.data_set import list_data_sets

    parts = Cache(cache_folder()).parts()
    found = [(kind, part) for begins, kind in _OTHERS.items() for part in parts if part.name.startswith(begins)]
    return found + [("data set", part) for part in list_data_sets()]


def _described(part: Part) -> dict[str, Any]:
    return {"name": part.name, "size": part.size, "built": part.made, "made_of": part.about.versions}


def _part_row(part: Part) -> tuple[str, str]:
    from storlab.report.language.format import quantity

    made_of = ", ".join(f"{name} {value}" for name, value in part.about.versions.items())
    return part.name, f"{quantity(part.size, 'B')}, {_age(time.time() - part.made)} old ({made_of})"


def _row(image: Listed) -> tuple[str, str]:
    from storlab.report.language.format import quantity

    age = f"{_age(time.time() - image.built)} old" + ("" if image.current else ", not used any more")
    total = quantity(sum(image.sizes.values()), "B")
    told = [f"{kind} {image.versions[kind]}" for kind in ("kernel", *image.extras) if kind in image.versions]
    return image.name, f"{total}, {age} ({', '.join(image.sizes)}; {', '.join(told)})"


def _age(seconds: float) -> str:
    from storlab.report.language.format import duration, plural

    days, minutes = int(seconds // 86400), max(1, round(seconds / 60))
    return plural(days, "day") if days else duration(minutes * 60.0)


@image.command("remove")
@travels("image remove")
def image_remove(
    name: Annotated[String, Argument(metavar="NAME", help="What to remove, as the list names it.")] = None,
    all_: Annotated[bool, Option("--all", help="All but data sets, and all that was downloaded.")] = False,
) -> None:
    """Remove a guest image, an unpacked program, an own kernel or a data set; or all."""
    if (name is None) == (not all_):
        raise UserError("name one image to remove, or say --all; `storlab image list` shows them")
    import asyncio

    from storlab.images.cache import remove_image

    if name is not None and asyncio.run(_remove_part(name)):
        show(f"removed: {name}")
        return
    removed = asyncio.run(remove_image(name))
    show(f"removed: {', '.join(removed)}" if removed else "There was no guest image.")


async def _remove_part(name: str) -> bool:
    """Whether there was such a part of this name, and no image's."""
    from storlab.images.cache import Cache, cache_folder, remove_tree
    from storlab.layers.database.data_set import remove_data_set

    cache = Cache(cache_folder())
    if name.startswith(tuple(_OTHERS)) and name in {part.name for part in cache.parts()}:
        async with cache.locked(lambda step: None):
            remove_tree(cache.folder / "parts" / name)
        return True
    return await remove_data_set(name)
