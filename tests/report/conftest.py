"""Golden files: ``STORLAB_UPDATE_GOLDEN=1 uv run pytest tests/report`` writes them again; look at the diff then."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .browser import Chromium, running

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if os.environ.get("STORLAB_UPDATE_GOLDEN"):
            file.write_text(text, "utf-8")
        assert text == file.read_text("utf-8"), f"{file} differs; see {__file__} for how to update it"

    return compare


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with running(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium
