"""``storlab clean`` without a run: nothing happens before its user has seen what would."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.run.recovery.temporary import remember_run, remembered_runs
from study.program import call


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_without_a_terminal_it_shows_what_it_would_do_and_ends_with_the_remedy(tmp_path: Path) -> None:
    remember_run("20260101-000000-abcd", tmp_path / "gone")
    asked = call("clean")
    assert asked.status == 2
    assert f"  20260101-000000-abcd: {tmp_path / 'gone'} is gone, and its journal with it\n" in asked.output
    assert "nothing was torn down: `storlab clean --yes` does it all" in asked.message
    assert list(remembered_runs()) == ["20260101-000000-abcd"]


def test_with_yes_it_does_it(tmp_path: Path) -> None:
    remember_run("20260101-000000-abcd", tmp_path / "gone")
    done = call("clean", "--yes")
    assert done.status == 0
    assert "it is forgotten" in done.output
    assert not remembered_runs()


def test_with_nothing_to_do_it_does_not_ask() -> None:
    assert call("clean").output == "No run is known that could have left anything.\n"
