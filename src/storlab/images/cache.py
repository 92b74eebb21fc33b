"""Where images lie: ``$XDG_CACHE_HOME/storlab/images``. All of it can be made again.

    parts/NAME-KEY/        a finished part: its files, and part.json, which says what it is
    images/NAME.json       an image: which parts it consists of
    downloads/             Debian packages
    alongside/             the same for parts of somebody's own kernels, which need no lock
    work/                  what is being built; without a lock on ``lock``, it is left over from a build that was killed
    logs/                  of the last build

A part is made in ``work`` and renamed when it is whole: what lies in ``parts`` is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from storlab.base.errors import ImageError, RecordsError, UserError
from storlab.base.record import read_record, to_json
from storlab.images import recipe

UNUSED = 14 * 86400  # seconds after which a part of somebody's own kernel goes
_PATIENCE = 0.1  # seconds between two looks at the lock


def storlab_cache() -> Path:
    """What can be made again, of any kind: ``$XDG_CACHE_HOME/storlab``, else ``~/.cache/storlab``.

    A relative one is passed over, as the XDG Base Directory Specification asks.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "storlab"


def cache_folder() -> Path:
    return storlab_cache() / "images"


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a part.json says. ``versions``: package → its version; ``release``: of the kernel that its modules fit."""

    versions: dict[str, str] = {}
    release: str = ""
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A finished part."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        """Of its folder: what it is, and the digest of what it was made of."""
        return self.folder.name

    @property
    def size(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*"))

    @property
    def made(self) -> float:
        """When, in seconds since 1970."""
        return (self.folder / "part.json").stat().st_mtime


@dataclass(frozen=True)
class Cache:
    """The folder, which may not exist yet."""

    folder: Path

    def path(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def used(self, name: str) -> Part | None:
        """As ``part``, and remembers that it was wanted: parts of somebody's own kernels go when unused."""
        part = self.part(name)
        if part is not None:
            with contextlib.suppress(OSError):
                os.utime(part.folder)
        return part

    def sweep(self, kind: str, keep: frozenset[str] = frozenset(), unused: float = 0.0) -> None:
        """Remove parts whose name begins so, but for these and those that were wanted lately (seconds)."""
        for folder in sorted((self.folder / "parts").glob(f"{kind}*")):
            if folder.name not in keep and time.time() - folder.stat().st_mtime >= unused:
                remove_tree(folder)

    def parts(self) -> list[Part]:
        found = []
        for folder in (self.folder / "parts").glob("*"):
            with contextlib.suppress(OSError):  # another process may be removing it
                if (part := self.part(folder.name)) is not None:
                    found.append((folder.stat().st_mtime, part))
        return [part for _, part in sorted(found, key=lambda pair: -pair[0])]

    def part(self, name: str) -> Part | None:
        """A finished part by the name of its folder; ``None`` where there is none that is whole."""
        folder = self.folder / "parts" / name
        try:
            return Part(folder, read_record(folder / "part.json", About))
        except (OSError, RecordsError):
            return None

    def finished(self, name: str) -> Part:
        """A part that was just made. Raises ``ImageError`` where somebody removed it."""
        part = self.part(name)
        if part is None:
            raise ImageError(f"{self.folder / 'parts' / name} was removed while it was used; try again")
        return part

    @contextlib.contextmanager
    def making(self, name: str, space: int) -> Iterator[Path]:
        """A folder to make a part in; it takes its place when this ends without an error. For who holds the lock.

        ``space``: bytes that it takes at its highest; raises ``ImageError`` where there are fewer.
        """
        self._need_space(space)
        work = self.folder / "work" / name
        remove_tree(work)
        work.mkdir(parents=True)
        try:
            yield work
            _sync(work)
            final = self.path("parts") / name
            remove_tree(final)
            work.rename(final)
        finally:
            remove_tree(work)

    @contextlib.contextmanager
    def making_alongside(self, name: str) -> Iterator[Path]:
        """As ``making``, for who holds no lock: whoever is ready first wins, and what was killed is swept away."""
        place = self.path("alongside")
        for left in place.iterdir():
            if not Path("/proc", left.suffix.removeprefix(".")).exists():
                remove_tree(left)
        work = place / f"{name}.{os.getpid()}"
        remove_tree(work)
        work.mkdir()
        try:
            yield work
            _sync(work)
            with contextlib.suppress(OSError):  # ENOTEMPTY: another process made the same meanwhile
                work.rename(self.path("parts") / name)
        finally:
            remove_tree(work)

    def finish(self, work: Path, about: About) -> None:
        (work / "part.json").write_bytes(to_json(about))

    @contextlib.asynccontextmanager
    async def locked(self, notify: Callable[[str], None]) -> AsyncIterator[None]:
        """The right to change what lies here; waits for another build to end. The lock goes with the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            await lock_file(lock.fileno(), lambda: notify("waiting for another build of an image to end"))
            remove_tree(self.folder / "work")
            yield

    def _need_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.path("")).free
        if free < needed:
            raise ImageError(
                f"to build this part of a guest image takes up to {needed / 1e9:.1f} GB in {self.folder}, where "
                f"{free / 1e9:.1f} GB are free; free some, or name another place with XDG_CACHE_HOME"
            )


async def lock_file(descriptor: int, waits: Callable[[], None] = lambda: None) -> None:
    """Lock an open file, for as long as it is open; ``waits`` is called, once, where another process has it."""
    waited = False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waited:
                waits()
            waited = True
            await asyncio.sleep(_PATIENCE)


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours, if it is there. Refuses where something is mounted in it."""
    if not folder.exists():
        return
    inside = f"{folder.resolve()}/"
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in mounts]
    mounted = [point for point in points if f"{point}/".startswith(inside)]
    if mounted:
        raise ImageError(f"{folder} is not removed, because something is mounted in it; umount {mounted[-1]}")
    try:
        shutil.rmtree(folder)
    except PermissionError as error:
        raise ImageError(f"{error.filename} belongs to another user; remove {folder} as root") from None


def _sync(folder: Path) -> None:
    """Let a part survive a power cut before it is called finished."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())


Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~_-]*$", max_length=200)]
"""Of a file or folder in the cache."""


class ImageManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``parts``: kind → folder in the cache; ``built``: seconds since 1970; ``recipe``: see ``recipe.image_recipe``."""

    name: Name
    release: str
    parts: dict[str, Name]
    recipe: str
    built: float
    versions: dict[str, str]

    def __post_init__(self) -> None:
        if not {"kernel", "root"} <= self.parts.keys():
            raise ValueError("an image has a kernel and a root")

    @property
    def extras(self) -> frozenset[str]:
        return frozenset(self.parts) - {"kernel", "root"}


@dataclass(frozen=True)
class Listed:
    """An image in the cache. ``sizes``: bytes on disk of each part; parts may belong to several images."""

    name: str
    release: str
    extras: tuple[str, ...]
    built: float
    current: bool
    sizes: Mapping[str, int]
    versions: Mapping[str, str]


def write_manifest(cache: Cache, release: str, extras: frozenset[str], parts: Mapping[str, Part]) -> ImageManifest:
    name = "+".join((f"debian-{release}", *sorted(extras)))
    versions: dict[str, str] = {}
    for part in (parts["root"], parts["kernel"], *(parts[extra] for extra in sorted(extras))):
        versions |= part.about.versions
    folders = {kind: part.name for kind, part in parts.items()}
    for found in manifests(cache):
        if (found.name, found.parts, found.recipe) == (name, folders, recipe.image_recipe()):
            return found  # nothing is new, and it keeps its age
    manifest = ImageManifest(name, release, folders, recipe.image_recipe(), time.time(), versions)
    path = cache.path("images") / f"{name}.json"
    new = path.with_suffix(".new")
    new.write_bytes(to_json(manifest))
    new.replace(path)
    return manifest


def manifests(cache: Cache) -> list[ImageManifest]:
    """All images, by name. What can't be read is none: it can be built again."""
    found = []
    for path in sorted((cache.folder / "images").glob("*.json")):
        try:
            found.append(read_record(path, ImageManifest))
        except (OSError, RecordsError):
            continue
    return found


def list_images() -> list[Listed]:
    cache = Cache(cache_folder())
    current = recipe.image_recipe()
    listed = []
    for found in manifests(cache):
        parts = {kind: part for kind, name in found.parts.items() if (part := cache.part(name)) is not None}
        if len(parts) == len(found.parts):
            sizes = {kind: part.size for kind, part in sorted(parts.items())}
            extras = tuple(sorted(found.extras))
            is_current = found.recipe == current
            listed.append(Listed(found.name, found.release, extras, found.built, is_current, sizes, found.versions))
    return sorted(listed, key=lambda image: image.built, reverse=True)


async def remove_image(name: str | None) -> list[str]:
    """Remove an image and every part that no other image has; ``None``: all of the cache. Returns what was removed."""
    cache = Cache(cache_folder())
    if not cache.folder.exists():
        if name is not None:
            raise UserError(f"there is no image {name!r}; there is none at all")
        return []
    async with cache.locked(lambda step: None):
        found = {manifest.name: manifest for manifest in manifests(cache)}
        if name is None:
            for folder in ("work", "images", "parts", "own", "downloads", "apt", "logs"):
                remove_tree(cache.folder / folder)
            return sorted(found)
        if name not in found:
            known = f"there are: {', '.join(found)}" if found else "there is none at all"
            raise UserError(f"there is no image {name!r}; {known}")
        (cache.folder / "images" / f"{name}.json").unlink()
        _sweep(cache)
        return [name]


def forget_old(cache: Cache) -> None:
    """Remove images that were made by another recipe: no study uses them any more. For who holds the lock."""
    current = recipe.image_recipe()
    for found in manifests(cache):
        if found.recipe != current:
            (cache.folder / "images" / f"{found.name}.json").unlink(missing_ok=True)
    _sweep(cache)


def _sweep(cache: Cache) -> None:
    """Remove parts that no image has. Compiled modules stay: minutes of work in a few megabytes."""
    used = frozenset(part for found in manifests(cache) for part in found.parts.values())
    for kind in ("kernel-", "root-", *(f"{extra}-[0-9a-f]" for extra in recipe.EXTRAS)):
        cache.sweep(kind, used)
