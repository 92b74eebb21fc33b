"""Two real guests for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..pair import Shop, open_shop


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A server and a client in one network."""
    with open_shop() as shop:
        yield shop
