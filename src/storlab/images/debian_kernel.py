"""Further kernels of Debian's, beside that of the image: guests boot ``debian:6.1`` with the image's root.

A series is unpacked once and stays: a kernel that a study compares with should not change because a newer one is out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable

from storlab.errors import ImageError, MissingImage, UserError
from storlab.images import commands, recipe
from storlab.images.apt import Apt, newest
from storlab.images.cache import Cache, Part, cache_folder
from storlab.images.parts import KernelPackage, make_kernel_part

PREFIX = "debian-kernel-"
"""How their parts of the cache begin."""
_PROGRAMS = ("apt-config", "apt-get", "dpkg-deb", "mkfs.erofs", "depmod", "zstd")


def find_debian_kernel(series: str) -> Part:
    """The unpacked kernel of a series. Raises ``MissingImage``."""
    cache = Cache(cache_folder())
    part = cache.part(_name(series))
    if part is None:
        raise MissingImage(
            f"Debian's kernel {series} is not in {cache.folder}; `storlab image kernel {series}` unpacks it"
        )
    return part


async def unpack_debian_kernel(
    series: str, notify: Callable[[str], None] = lambda step: None, mirror: str = recipe.MIRROR
) -> Part:
    """Unpack the newest kernel of a series, where none of it is there.

    Raises ``UserError`` for a series that Debian doesn't have, ``MissingTool``, and ``ImageError``.
    """
    if not recipe.SERIES.fullmatch(series):
        raise UserError(f"{series} is no series of kernels: write two numbers, such as 6.1")
    if series == recipe.OWN_SERIES:
        raise UserError(f"{series} is the kernel of the guest image: `storlab image build` makes it")
    if platform.machine() != "x86_64":
        raise UserError(f"kernels are unpacked for x86-64 only, and this machine is {platform.machine()}")
    commands.need(_PROGRAMS, "unpacking a kernel")
    cache = Cache(cache_folder())
    async with cache.locked(notify):
        if (found := cache.part(_name(series))) is not None:
            return found
        apt = Apt(cache.path("apt"), mirror, cache.path("logs") / "apt.log")
        notify(f"asking the Debian mirror for its newest kernel {series}")
        await apt.update()
        return await make_kernel_part(cache, apt, _newest(apt, series), _name(series), notify)


def _newest(apt: Apt, series: str) -> KernelPackage:
    name = re.compile(rf"linux-image-({re.escape(series)}\.[\w.+-]+-amd64)")
    plain = [each for each in apt.search(rf"^linux-image-{re.escape(series)}\..*-amd64$") if name.fullmatch(each)]
    plain = [each for each in plain if not re.search(r"-(?:cloud|rt)-amd64$", each)]
    package = newest(apt.show(plain), name) if plain else None
    if package is None:
        raise ImageError(f"the Debian mirror has no kernel {series} in {recipe.SUITE} or its backports")
    return KernelPackage(package["Package"].removeprefix("linux-image-"), package["Version"])


def _name(series: str) -> str:
    return f"{PREFIX}{series}-{recipe.digest(recipe.kernel_recipe())}"
