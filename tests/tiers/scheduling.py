"""What runs together and what begins first.

Tests that share a fixture run on one worker, so that it is set up once; all others go anywhere. The dearest begin
first, as one that begins last keeps the other workers waiting.

xdist's own groups (``--dist loadgroup``) don't work with pytest 9: they rename tests by a field that it no longer has.
The process that hands tests out imports none of them, so the workers write down for it which belong together.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from .costs import Costs, fixture_name

_KEY = "groups_file"  # of what a worker is given


def shared_fixtures(item: pytest.Item) -> dict[str, str]:
    """The fixtures that a test shares with others of its module or folder: its set-up with its parameter → its name."""
    found: dict[str, str] = {}
    definitions: Mapping[str, Sequence[pytest.FixtureDef[Any]]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    parameters = getattr(getattr(item, "callspec", None), "indices", {})
    for name, each in definitions.items():
        definition = each[-1]
        if definition.scope in ("class", "module", "package"):
            own = {used: parameters[used] for used in _closure(name, definitions) if used in parameters}
            found[f"{fixture_name(definition)}{sorted(own.items())}"] = fixture_name(definition)
    return found


def _closure(name: str, definitions: Mapping[str, Sequence[pytest.FixtureDef[Any]]]) -> set[str]:
    """A fixture and all that it is made of."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        next_one = waiting.pop()
        if next_one not in found:
            found.add(next_one)
            waiting += definitions[next_one][-1].argnames if next_one in definitions else ()
    return found


def cost_with_fixtures(nodeid: str, shared: set[str], costs: Costs) -> float:
    """CPU s of a test and of all that it shares. ``shared``: names of fixtures."""
    return costs.tests.get(nodeid, 0.0) + sum(costs.fixtures.get(name, 0.0) for name in shared)


def groups(shared: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Test → its group, of those that share something with others. ``shared``: test → set-ups that it uses."""
    leader: dict[str, str] = {}

    def first(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for each in shared.values():
        names = sorted(each)
        for name in names:
            leader[first(name)] = first(names[0])
    return {test: first(sorted(each)[0]) for test, each in shared.items() if each}


def in_order(group_of: Mapping[str, str], costs: Costs, shared: Mapping[str, set[str]]) -> list[str]:
    """Tests: groups whole, the dearest first. ``shared``: each test → names of the fixtures that it shares."""
    totals: dict[str, float] = {}
    fixtures: dict[str, set[str]] = {}
    for test, used in shared.items():
        group = group_of.get(test, test)
        totals[group] = totals.get(group, 0.0) + costs.tests.get(test, 0.0)
        fixtures.setdefault(group, set()).update(used)
    for group, used in fixtures.items():
        totals[group] += sum(costs.fixtures.get(fixture, 0.0) for fixture in used)
    place = {group: turn for turn, group in enumerate(sorted(totals, key=lambda group: -totals[group]))}
    return sorted(shared, key=lambda test: place[group_of.get(test, test)])


class Groups:
    """A plugin of pytest: workers write their groups down, and the process that hands out tests reads them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="storlab-tests-")
        self._file = Path(self._folder.name) / "groups.json"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        node.workerinput[_KEY] = str(self._file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling:
        config.option.loadscopereorder = False  # in the order of the workers, and not groups with many tests first
        return _Scheduling(config, log, self._file)

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


def write_groups(config: pytest.Config, group_of: Mapping[str, str]) -> None:
    """From a worker. All write the same."""
    file = Path(config.workerinput[_KEY])  # type: ignore[attr-defined]
    own = file.with_suffix(f".{config.workerinput['workerid']}")  # type: ignore[attr-defined]
    own.write_text(json.dumps(group_of), "utf-8")
    own.rename(file)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    def __init__(self, config: pytest.Config, log: Producer, file: Path) -> None:
        super().__init__(config, log)
        self._file = file
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads(self._file.read_text("utf-8"))
        return self._groups.get(nodeid, nodeid)
