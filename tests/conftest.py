"""What holds for all tests: a laboratory for each, what it needs, and the tier and the turn that it has."""

import asyncio
import atexit
import contextlib
import fcntl
import gc
import inspect
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from laboratory import Laboratory
from laboratory.preloaded import count_lines_for
from tiers import costs, scheduling
from tiers.fuzzing import enlarge, is_fuzz
from tiers.needs import needs_of, skip_unless_met
from tiers.tiers import ASKED, runs_in, tier_of

# What one test kills is for that test to look for, and not for the `storlab clean` of another that runs meanwhile.
os.environ["STORLAB_ORPHAN_AGE"] = "1000000000"

# Tests run side by side, and none waits for the machine of another.
os.environ["STORLAB_LOCKS"] = tempfile.mkdtemp(prefix="storlab-test-locks-")
atexit.register(shutil.rmtree, os.environ["STORLAB_LOCKS"], ignore_errors=True)

# How long an example takes tells something of the machine, on which other tests run at the same time.
settings.register_profile("storlab", deadline=None)
settings.load_profile("storlab")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("storlab.run.recovery.reclaim.LOCK", tmp_path / "state" / "settings")  # none waits for another
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


@pytest.fixture
def alone_tracing() -> Iterator[None]:
    """No other test that asks for this runs meanwhile, on any worker.

    Of two programs on classic tracepoints, the kernel leaves out the one that begins on the CPU of the other.
    """
    with (Path(tempfile.gettempdir()) / f"storlab-tests-{os.getuid()}-tracing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty one within that of the test."""
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=list(ASKED), default="all", help="the tests of `make check`, `make test` …")
    costs.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    costs.record_if_asked(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(scheduling.Groups(), "groups")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is loaded stays to the end: looking for garbage in it takes a seventh of the time, and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier that is asked for. STORLAB_FUZZ: how many times as many examples as usual."""
    fuzzed = {}  # functions; one may be several tests
    for item in items:
        if is_fuzz(item):
            item.add_marker("fuzz")
            fuzzed[item.obj] = int(os.environ.get("STORLAB_FUZZ", "1"))  # type: ignore[attr-defined]
    for test, times in fuzzed.items():
        enlarge(test, times)
    known = costs.read_costs()
    set_ups = {item: scheduling.shared_fixtures(item) for item in items}
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        cost = scheduling.cost_with_fixtures(item.nodeid, {*set_ups[item].values()}, known)
        runs = runs_in(config.getoption("--tier"), tier_of(item.nodeid, needs_of(item), cost))
        (kept if runs else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
    if hasattr(config, "workerinput"):
        group_of = scheduling.groups({item.nodeid: set_ups[item] for item in kept})
        scheduling.write_groups(config, group_of)
        turns = scheduling.in_order(group_of, known, {item.nodeid: {*set_ups[item].values()} for item in kept})
        place = {test: turn for turn, test in enumerate(turns)}
        kept.sort(key=lambda item: place[item.nodeid])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture, as these may need it, too."""
    skip_unless_met(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine where its guests are, else in the loop of its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given: dict[str, Any] = pyfuncitem.funcargs
    loop = given.get("shop", given.get("runner", asyncio))
    loop.run(pyfuncitem.obj(**{name: given[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lines that run count as those of the test that runs, in this process and in those that it starts."""
    count_lines_for(item.nodeid)
    return (yield)


def pytest_report_header() -> str:
    """Which results that others published are read as well: they aren't part of this project."""
    folder = os.environ.get("STORLAB_REFERENCE")
    return f"published results: {folder or 'none, for STORLAB_REFERENCE names no folder; their like is made instead'}"
