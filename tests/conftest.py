"""What holds for all tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from laboratory import Laboratory
from tiers.fuzzing import enlarge, is_fuzz, is_system, longest_first
from tiers.needs import skip_unless_met

# What one test kills is for that test to look for, and not for the `storlab clean` of another that runs meanwhile.
os.environ["STORLAB_ORPHAN_AGE"] = "1000000000"

# How long an example takes tells something of the machine, on which other tests run at the same time.
settings.register_profile("storlab", deadline=None)
settings.load_profile("storlab")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the tier that it is of. STORLAB_FUZZ: how many times as many examples as usual."""
    fuzzed = {}  # functions; one may be several tests
    for item in items:
        if is_system(item):
            item.add_marker("system")
        if is_fuzz(item):
            item.add_marker("fuzz")
            fuzzed[item.obj] = int(os.environ.get("STORLAB_FUZZ", "1"))  # type: ignore[attr-defined]
    for test, times in fuzzed.items():
        enlarge(test, times)
    if "PYTEST_XDIST_WORKER" in os.environ:
        longest_first(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture, as these may need it, too."""
    skip_unless_met(item)


def pytest_report_header() -> str:
    """Which results that others published are read as well: they aren't part of this project."""
    folder = os.environ.get("STORLAB_REFERENCE")
    return f"published results: {folder or 'none, for STORLAB_REFERENCE names no folder; their like is made instead'}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Tests that share what their module sets up run on one worker, and it is set up once. All others go anywhere.

    xdist's own groups (``--dist loadgroup``) don't work with pytest 9: they rename tests by a field that it no longer
    has.
    """
    config.option.loadscopereorder = False  # in the order of the workers, and not modules with many tests first
    return _SharedSetUps(config, log)


class _SharedSetUps(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return file if _sets_up(self.config.rootpath / file) else nodeid


@cache
def _sets_up(file: Path) -> bool:
    """Whether this module has a fixture for all of its tests, its own or that of its folder.

    The process that hands out tests hasn't imported it.
    """
    beside = file.with_name("conftest.py")
    return any('(scope="module")' in each.read_text("utf-8") for each in (file, beside) if each.exists())
