"""A part: the root file system of guests, a Debian with everything that studies drive, as one EROFS image."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from storlab.images import recipe
from storlab.images.apt import Apt
from storlab.images.bootstrap import EXCHANGE, Bootstrap, erofs_command
from storlab.images.cache import Cache, Part, remove_tree

_SPACE = 3 << 30

# Their contents come and go; the folders stay, to be mounted on.
_LEFT_OUT = r"^(proc|sys|dev|run|tmp|var/lib/apt/lists|var/cache/apt)/."


async def root_part(cache: Cache, apt: Apt, mirror: str, zfs: str, told: Callable[[str], None]) -> Part:
    """``zfs``: the version of ZFS's programs, which must fit the modules."""
    key = recipe.digest([recipe.root_recipe(), zfs])
    name = f"root-{key}"
    if (found := cache.part(name)) is not None:
        return found
    told("root file system: a Debian with fio, databases, file-system and network tools, about a minute")
    downloads = cache.path("downloads/packages")
    versions = [(package, zfs) for package in recipe.WITHOUT_DEPENDENCIES]
    apart = await apt.download(versions, downloads)
    with cache.making(name, _SPACE) as work:
        bootstrap = Bootstrap(
            packages=recipe.packages(),
            apt=apt,
            mirror=mirror,
            archives=cache.path("downloads/root"),
            fetched=apart,
            outside=[recipe.script("finish-root.sh"), _pack(key)],
            results={file: work / file for file in ("root.erofs", "packages", "programs")},
        )
        await bootstrap.run(work, cache.path("logs") / "root.log", lambda step: told(f"root file system: {step}"))
        remove_tree(work / "tmp")
        lines = (line.partition("\t") for line in (work / "packages").read_text().splitlines())
        installed = {package.partition(":")[0]: version for package, _, version in lines}
        programs = (work / "programs").read_text().splitlines()
        cache.finish(work, {"versions": installed, "programs": programs})
    return cache.finished(name)


def _pack(key: str) -> str:
    """mkfs.erofs looks at the extended attributes even of what it leaves out: so a view without /proc."""
    view, target = f"$1{EXCHANGE}/view", f"$1{EXCHANGE}/root.erofs"
    command = erofs_command(target, view, key)
    words = [f'"{word}"' if "$1" in word else shlex.quote(word) for word in command]
    words.insert(1, shlex.quote(f"--exclude-regex={_LEFT_OUT}"))
    return f"""
set -eu
echo 'storlab: packing it as EROFS'
mkdir "{view}"
mount --bind "$1" "{view}"
{" ".join(words)}
umount "{view}"
"""
