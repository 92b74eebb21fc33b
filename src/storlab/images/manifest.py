"""Which parts an image consists of: one small JSON file an image, and what can be done with those files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from storlab.errors import RecordsError, UserError
from storlab.images import recipe
from storlab.images.cache import Cache, Part, cache_folder, remove_tree
from storlab.record import read_record, to_json

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
