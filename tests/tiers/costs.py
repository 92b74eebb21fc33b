"""What tests cost, measured: CPU seconds of the worker, of the processes that it waited for, and of controllers.

``--record-costs FILE`` writes them. What a fixture of a wider scope than one test costs is measured by itself, with its
teardown, and is no test's. Threads of the kernel and processes that nobody waits for are not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from laboratory.preloaded import forked_cpu_seconds

from .tiers import CHECK_LIMIT

FILE = Path(__file__).with_name("costs.json")
_OPTION = "--record-costs"
_KEY = "costs"  # of what a worker sends when it ends


@dataclass(frozen=True)
class Costs:
    """CPU seconds of tests and of shared fixtures, by their names. What is in neither costs nothing worth a figure."""

    tests: Mapping[str, float] = field(default_factory=dict)
    fixtures: Mapping[str, float] = field(default_factory=dict)


def read_costs(file: Path = FILE) -> Costs:
    """What was recorded; nothing where nothing was."""
    if not file.exists():
        return Costs()
    found = json.loads(file.read_text("utf-8"))
    return Costs(found["tests"], found["fixtures"])


def write_costs(costs: Costs, file: Path = FILE) -> None:
    """In the order of names, one a line, so that a difference can be read. Less than a tier's limit decides nothing."""
    kept = {
        kind: {name: round(cost, 2) for name, cost in sorted(each.items()) if cost >= CHECK_LIMIT}
        for kind, each in (("tests", costs.tests), ("fixtures", costs.fixtures))
    }
    file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def merge(parts: list[Costs]) -> Costs:
    """Those of all workers. A fixture that several set up costs what it did where it cost most."""
    tests: dict[str, float] = {}
    fixtures: dict[str, float] = {}
    for part in parts:
        for whole, each in ((tests, part.tests), (fixtures, part.fixtures)):
            for name, cost in each.items():
                whole[name] = max(cost, whole.get(name, 0.0))
    return Costs(tests, fixtures)


def add_option(parser: pytest.Parser) -> None:
    """``--record-costs FILE``."""
    parser.addoption(_OPTION, type=Path, metavar="FILE", help="write the CPU seconds of each test into this file")


def record_if_asked(config: pytest.Config) -> None:
    """Measure in this process; where it hands tests out to others, collect what they measured."""
    if config.getoption(_OPTION):
        config.pluginmanager.register(Recorder(config), "costs")


def cpu_seconds() -> float:
    """Of this process, its children that have ended, and the controllers that were forked for it."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system + forked_cpu_seconds()


def fixture_name(definition: pytest.FixtureDef[Any]) -> str:
    """Where a fixture is from, and what it is called."""
    return f"{definition.baseid}::{definition.argname}"


class Recorder:
    """A plugin of pytest that measures. ``clock``: CPU seconds so far."""

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = cpu_seconds) -> None:
        self._config = config
        self._clock = clock
        self._tests: dict[str, float] = {}
        self._fixtures: dict[str, float] = {}
        self._shared = 0.0  # s spent on fixtures so far
        self._parts: list[Costs] = []

    @property
    def costs(self) -> Costs:
        """What was measured so far."""
        return merge([Costs(self._tests, self._fixtures), *self._parts])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        begun, before = self._clock(), self._shared
        try:
            return (yield)
        finally:
            own = self._clock() - begun - (self._shared - before)
            self._tests[item.nodeid] = self._tests.get(item.nodeid, 0.0) + max(own, 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        name, timer = fixture_name(fixturedef), _Timer(self)
        fixturedef.addfinalizer(lambda: timer.stop(name))  # the last to be called
        timer.start()
        try:
            return (yield)
        finally:
            timer.stop(name)
            fixturedef.addfinalizer(timer.start)  # and the first

    def now(self) -> float:
        """CPU seconds so far but for those already counted for some fixture."""
        return self._clock() - self._shared

    def count(self, name: str, cost: float) -> None:
        """Add to what a fixture costs."""
        self._fixtures[name] = self._fixtures.get(name, 0.0) + cost
        self._shared += cost

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended; one that crashed has nothing to say."""
        if sent := getattr(node, "workeroutput", {}).get(_KEY):
            self._parts.append(Costs(sent["tests"], sent["fixtures"]))

    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_KEY] = {"tests": self._tests, "fixtures": self._fixtures}

    def pytest_unconfigure(self) -> None:
        if not hasattr(self._config, "workeroutput"):
            write_costs(self.costs, self._config.getoption(_OPTION))


class _Timer:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._since: float | None = None

    def start(self) -> None:
        self._since = self._recorder.now()

    def stop(self, name: str) -> None:
        if self._since is not None:
            self._recorder.count(name, max(self._recorder.now() - self._since, 0.0))
            self._since = None
