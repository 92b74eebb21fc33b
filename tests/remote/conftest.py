"""Machines that have Storlab, and a laboratory whose commands reach them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.hosts import Hosts, bring, hosts


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """``lab1`` has this Storlab, ``lab2`` doesn't."""
    with hosts(tmp_path_factory.mktemp("on") / "hosts", 2) as made:
        bring(made["lab1"])
        yield made


@pytest.fixture
def here(lab: Laboratory, machines: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Nothing is left on ``lab1`` that runs; what was fetched is removed."""
    lab.environment |= machines.environment
    monkeypatch.chdir(lab.folder)
    on_host(machines, lab.scratch).mkdir(parents=True, exist_ok=True)
    yield lab
    lab.storlab("lab", "forget", "lab1")
    assert machines["lab1"].processes() == [] and [each.name for each in jobs_of(machines).iterdir()] == []
    assert list(on_host(machines, lab.scratch).iterdir()) == []


def trials(lab: Laboratory) -> list[tuple[int, int, str]]:
    """Number, round and cell's levels of each trial that is recorded here."""
    return [(record.trial, record.round, str(record.levels)) for record in lab.records()]


def on_host(machines: Hosts, path: Path) -> Path:
    """A folder below ``/tmp`` of ``lab1``, as this machine sees it."""
    return machines["lab1"].tmp / path.relative_to("/tmp")


def jobs_of(machines: Hosts) -> Path:
    return machines["lab1"].home / ".local" / "state" / "storlab" / "jobs"
