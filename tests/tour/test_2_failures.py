"""The tour, second part: what dies, and what is left then.

A guest that is killed fails its trial with the reason, and the next one runs. A controller that is killed takes its
guests with it; `storlab clean` undoes what the journal says, and `storlab resume` finishes the run. A power cut shows
which set-up keeps what it acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory, ended, kill, opened, wait_for, wait_until
from laboratory.guests import FOREVER_AT_FIRST, begun, endings, guests, kill_guest, once_begun, qemus
from laboratory.studies import POWER_CUTS

pytestmark = pytest.mark.needs("guests")

BOTH = ("vm-1", "vm-2")
DISKS_FROM_HERE = guests(
    FOREVER_AT_FIRST.replace("sleep 3600", "sleep 3"),
    memory='"256M"',
    stack='[{ layer = "file", size = "16M" }, { layer = "virtio-blk" }]',
    from_='"here"',
    rest="""
[nodes.here]
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
)


def test_a_guest_that_is_killed_is_named_and_the_next_trial_runs(lab: Laboratory) -> None:
    with once_begun(lab, BOTH, lambda: kill_guest(lab, "vm-2")):
        result = lab.run(guests(FOREVER_AT_FIRST, rounds=2, memory='"256M"'))
    assert result.status == 3, "a run of which a trial failed is no success"
    assert endings(lab) == [("failed", "node vm-2: QEMU was killed by SIGKILL"), ("done", None)]
    assert "node vm-2: QEMU was killed by SIGKILL" in result.stdout
    assert lab.records()[0].detail == "The end of its console:\nthe load has begun"
    assert lab.leftovers() == []


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, dict[str, object]]]:
    """A run that is killed while its load works, then cleaned up and resumed; what was seen on the way."""
    with opened(Laboratory(tmp_path_factory.mktemp("killed"))) as lab:
        seen: dict[str, object] = {}
        process = lab.start_run(DISKS_FROM_HERE, "--quiet")
        wait_for(process, lambda: begun(lab, *BOTH))
        seen["guests"] = {*qemus(lab)}
        kill(process)
        ended(process)
        seen["guests have ended"] = wait_until(lambda: not qemus(lab), 10)
        seen["left"] = lab._leftovers()
        seen["cleaned"] = lab.storlab("clean", "--yes")
        seen["left after clean"] = lab.leftovers()
        seen["resumed"] = lab.storlab("resume", lab.out, "--quiet")
        yield lab, seen


def test_a_controller_that_is_killed_takes_its_guests_with_it(killed: tuple[Laboratory, dict[str, object]]) -> None:
    _, seen = killed
    assert seen["guests"] == {*BOTH}
    assert seen["guests have ended"]


def test_clean_undoes_all_that_the_journal_says_and_names_it(killed: tuple[Laboratory, dict[str, object]]) -> None:
    _, seen = killed
    assert any("loop device over" in each for each in seen["left"]), seen["left"]  # type: ignore[attr-defined]
    cleaned = seen["cleaned"]
    assert isinstance(cleaned, Ended) and cleaned.status == 0, cleaned
    for told in ("detached /dev/loop", "unmounted", "removed"):
        assert told in cleaned.stdout, cleaned
    assert seen["left after clean"] == []


def test_resume_finishes_the_run_as_if_nothing_had_been(killed: tuple[Laboratory, dict[str, object]]) -> None:
    lab, seen = killed
    resumed = seen["resumed"]
    assert isinstance(resumed, Ended) and resumed.status == 0, resumed
    assert endings(lab) == [("done", None)]
    assert lab.leftovers() == []


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended]]:
    """A study that asks for power cuts, once it was run."""
    with opened(Laboratory(tmp_path_factory.mktemp("cut"))) as lab:
        study = Path(lab.folder / "study.toml")
        study.write_text(POWER_CUTS)
        options = ("--out", lab.out, "--seed", "7", "--set", f"scratch={lab.scratch}")
        yield lab, lab.storlab("run", study, *options, timeout=400)


def test_the_set_up_that_ignores_flushes_loses_what_it_acknowledged(cut: tuple[Laboratory, Ended]) -> None:
    lab, said = cut
    assert said.status == 0, said
    shown = json.loads(lab.storlab("report", lab.out, "--format", "json").stdout)["facts"]["power_cuts"]
    kept, lost = shown
    assert (kept["levels"]["cache"], kept["moments"], kept["broken"]) == ("none", 10, 0)
    assert (lost["levels"]["cache"], lost["moments"]) == ("unsafe", 10)
    assert lost["broken"] >= 7, lost


def test_what_a_power_cut_takes_stands_beside_what_the_rounds_measured(cut: tuple[Laboratory, Ended]) -> None:
    lab, said = cut
    assert "After a power cut" in said.stdout and "0 of 10" in said.stdout, said
    assert "After a power cut" in (lab.out / "report.html").read_text()
