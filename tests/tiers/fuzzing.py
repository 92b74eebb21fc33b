"""Which tests `make check` runs, how many examples those have that make up their input, and what begins first.

A test is of `make check` unless it is one of those below, or marked ``root``, ``slow``, or with what it is skipped
without.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

SYSTEM = (
    "analysis/effects/test_effects.py",
    "analysis/stats/test_interleaving.py",
    "analysis/suite/test_comparing.py",
    "analysis/test_soundness.py",
    "cli/",
    "docs/test_commands.py",
    "docs/test_examples.py",
    "docs/test_extensions.py",
    "formats/fio/test_histogram_log.py",
    "importing/test_fio_beside.py",
    "layers/",
    "report/charts/test_charts.py",
    "report/formats/test_escape.py",
    "report/formats/test_html.py",
    "report/formats/test_html_accessibility.py",
    "report/formats/test_html_in_use.py",
    "report/formats/test_html_suites.py",
    "report/model/test_variability.py",
    "run/",
    "scripts/",
    "workloads/test_fio_runs.py",
)
"""What starts nodes, guests, a browser, fio or whole runs, or simulates or draws for long: files, folders of tests."""

LONGEST = (
    "crash/test_crash_databases.py",
    "crash/test_crash_guests.py",
    "layers/net/",
    "layers/test_shares.py",
    "layers/test_zfs.py",
    "docs/test_commands.py",
    "attacks/test_kills.py",
    "run/test_killed.py",
    "run/test_shar",
    "run/test_guests",
    "images/",
    "scripts/test_installed.py",
)
"""What takes longest, the longest first: files, folders of tests, or how their names begin."""

_ALSO = ("root", "slow", "skipif", "needs")


def is_system(item: pytest.Item) -> bool:
    """Whether a test takes what not every machine has, or longer than `make check` can wait."""
    place = item.nodeid.removeprefix("tests/")
    return place.startswith(SYSTEM) or any(item.get_closest_marker(name) for name in _ALSO)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort whole files, so that no worker is left at the end with one that takes minutes, the others having nothing."""
    turns: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        turns[file] = min(_turn(item), turns.get(file, len(LONGEST) + 2))
    items.sort(key=lambda item: turns[item.nodeid.partition("::")[0]])


def _turn(item: pytest.Item) -> int:
    place = item.nodeid.removeprefix("tests/")
    listed = (turn for turn, beginning in enumerate(LONGEST) if place.startswith(beginning))
    others = 0 if item.get_closest_marker("slow") else 1 if is_system(item) else 2
    return next(listed, len(LONGEST) + others)


def is_fuzz(item: pytest.Item) -> bool:
    """Whether a test makes up its input."""
    return is_hypothesis_test(getattr(item, "obj", None))


def enlarge(test: Any, times: int) -> None:
    """Give a test that makes up its input so many times as many examples, whatever it says itself."""
    own = test._hypothesis_internal_use_settings  # as hypothesis' own plugin for pytest reads them
    test._hypothesis_internal_use_settings = settings(own, max_examples=own.max_examples * times)
