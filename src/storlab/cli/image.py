"""``storlab image``: build, list and remove what guests boot."""

from __future__ import annotations

import asyncio
import json as json_module
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from rich.console import Console

from storlab.cli.failure import INTERRUPTED
from storlab.errors import MissingImage, UserError
from storlab.images.image import build_image, find_image
from storlab.images.manifest import Listed, list_images, remove_image
from storlab.report.format import duration, plural, quantity


def build(extras: Sequence[str], mirror: str, if_missing: bool, quiet: bool) -> int:
    """Build what is missing of an image; returns the exit status."""
    if if_missing:
        with suppress(MissingImage):
            found = find_image(frozenset(extras))
            if not quiet:
                print(f"{found.name} is there")
            return 0
    begin = time.monotonic()
    try:
        with _progress(quiet) as told:
            image = asyncio.run(build_image(frozenset(extras), told, mirror))
    except KeyboardInterrupt:
        print("storlab: interrupted; what was finished is kept, the next build goes on from there", file=sys.stderr)
        return INTERRUPTED
    if not quiet:
        print(f"{image.name} is ready, after {duration(time.monotonic() - begin)}")
    return 0


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line that changes on a terminal, a line a step elsewhere; on standard error, as all progress."""
    if quiet:
        yield lambda step: None
    elif sys.stderr.isatty():
        console = Console(stderr=True, highlight=False)
        with console.status("building a guest image") as status:
            yield lambda step: status.update(step)
    else:
        yield lambda step: print(step, file=sys.stderr, flush=True)


def listing(json: bool) -> None:
    """Print the images in the cache, the newest first."""
    images = list_images()
    if json:
        print(json_module.dumps([asdict(image) for image in images], indent=2))
        return
    if not images:
        print("There is no guest image; `storlab image build` makes one.")
        return
    for image in images:
        print("  ".join(_row(image)))
    if not all(image.current for image in images):
        print("`storlab image remove NAME` frees the space of one that is not used any more.")


def _row(image: Listed) -> tuple[str, ...]:
    """Name, size, age, and the versions that tell images apart."""
    age = f"{_age(time.time() - image.built)} old" + ("" if image.current else ", not used any more")
    total = quantity(sum(image.sizes.values()), "B")
    told = [f"{kind} {image.versions[kind]}" for kind in ("kernel", *image.extras) if kind in image.versions]
    return image.name, total, age, f"({', '.join(image.sizes)}; {', '.join(told)})"


def _age(seconds: float) -> str:
    """In days, or rounded to minutes below one."""
    days, minutes = int(seconds // 86400), max(1, round(seconds / 60))
    return plural(days, "day") if days else duration(minutes * 60.0)


def remove(name: str | None, all_: bool) -> None:
    """Remove one image, or all of the cache."""
    if (name is None) == (not all_):
        raise UserError("name one image to remove, or say --all; `storlab image list` shows them")
    removed = asyncio.run(remove_image(name))
    print(f"removed: {', '.join(removed)}" if removed else "There was no guest image.")
