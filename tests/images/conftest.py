"""Images are built once for all tests, in the user's own cache: `make test` has done so before."""

from __future__ import annotations

import asyncio
import os

import pytest

from storlab.errors import MissingImage
from storlab.images.image import Image, build_image, find_image


@pytest.fixture(scope="session")
def image() -> Image:
    """One with ZFS. Built where it is missing and can be."""
    extras = frozenset({"zfs"})
    try:
        return find_image(extras)
    except MissingImage:
        if os.geteuid() != 0:
            pytest.skip("there is no guest image, and building one needs root")
        return asyncio.run(build_image(extras))
