"""``storlab plan``, ``list`` and ``schema``: what they print, for people and for programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from study.program import call

GOLDEN = Path(__file__).parent / "golden"
STUDY = """
title = "Two directories"
description = "A description that is so long that it has to be broken into two lines of eighty columns each."
stack = [{ layer = "directory" }]
[factors]
bs = ["4k", "64k"]
sync = ["fsync", "fdatasync", "end_fsync"]
spare = ["one"]
[repeat]
min = 2
max = 4
[workload.random-write]
fio = { rw = "randwrite", bs = "{bs}", size = "1M", runtime = "2s", time_based = true, description = "{sync}" }
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(STUDY)
    return tmp_path


def planned(*arguments: str) -> str:
    ran = call("plan", "two.toml", *arguments)
    assert (ran.status, ran.message) == (0, "")
    return ran.output


def test_a_plan_fits_eighty_columns(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = re.sub(r"\d+G free", "N free", planned("--seed", "7"))
    file = GOLDEN / "plan.txt"
    if os.environ.get("STORLAB_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"{file} differs; STORLAB_UPDATE_GOLDEN=1 writes it again"
    assert [path.name for path in study.iterdir()] == ["two.toml"]


def test_a_plan_for_programs_is_the_same_for_the_same_seed(study: Path) -> None:
    def made(seed: int) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(planned("--json", "--seed", str(seed)))
        for key in ("space", "files_of_loads", "memory"):
            plan.pop(key)  # what is free changes from one moment to the next
        return plan

    plan = made(7)
    assert plan == made(7)
    assert plan["order"] != made(8)["order"]
    assert len(plan["cells"]) == 6
    assert plan["rounds"] == {"min": 2, "max": 4}
    assert all(sorted(order) == [1, 2, 3, 4, 5, 6] for order in plan["order"].values())
    assert plan["seconds_per_round"] == pytest.approx(6 * 2.5)


def test_seed_nought_is_a_seed(study: Path) -> None:
    assert json.loads(planned("--json", "--seed", "0"))["order"] is not None


def test_without_a_seed_there_is_no_order_yet(study: Path) -> None:
    assert json.loads(planned("--json"))["order"] is None


def test_rounds_only_and_set_change_the_plan(study: Path) -> None:
    plan = json.loads(planned("--json", "--rounds", "3", "--only", "bs=4k", "--set", "title=Other"))
    assert plan["rounds"] == {"min": 3, "max": 3}
    assert plan["factors"]["bs"] == ["4k"]
    assert plan["title"] == "Other"
    assert [cell["cell"] for cell in plan["cells"]] == [1, 2, 3]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("written", "line", "says"),
    [
        ('path = "/nowhere/at/all"', 4, "there is no directory /nowhere/at/all"),
        ('path = "relative"', 4, "write an absolute path"),
        ('path = "/etc/hostname"', 4, "there is no directory /etc/hostname"),
    ],
)
def test_a_directory_that_is_not_there_is_refused(
    command: str, written: str, line: int, says: str, study: Path
) -> None:
    Path("two.toml").write_text(STUDY.replace('"directory"', f'"directory", {written}'))
    ran = call(command, "two.toml")
    assert ran.status == 2
    assert ran.message.startswith(f"two.toml: line {line}: stack[0]: ")
    assert says in ran.message
    assert [path.name for path in study.iterdir()] == ["two.toml"]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("written", "where", "says"),
    [
        ("bss = 1", "line 13: workload.random-write.fio.bss: ", "fio knows no option bss; did you mean bs?"),
        ('ioengine = "psink"', "line 12: workload.random-write: ", "this fio has no ioengine psink"),
        ("iodepth = -1", "line 12: workload.random-write: ", "iodepth: min value out of range: -1"),
        ('rwmixread = "many"', "line 12: workload.random-write: ", "rwmixread"),
    ],
)
def test_an_option_that_fio_does_not_know_is_refused(
    command: str, written: str, where: str, says: str, study: Path
) -> None:
    Path("two.toml").write_text(STUDY.replace('rw = "randwrite"', f'rw = "randwrite", {written}'))
    ran = call(command, "two.toml")
    assert ran.status == 2
    assert ran.message.startswith(f"two.toml: {where}")
    assert says in ran.message
    assert ran.message.count("\n") == 1
    assert [path.name for path in study.iterdir()] == ["two.toml"]


def test_a_file_larger_than_the_free_space_is_refused(study: Path) -> None:
    stack = 'stack = [{ layer = "file", size = "4096T" }, { layer = "loop" }]'
    Path("two.toml").write_text(STUDY.replace('stack = [{ layer = "directory" }]', stack))
    ran = call("plan", "two.toml")
    if os.geteuid() != 0:
        pytest.skip("without root loop devices are unsupported, and so nothing takes space")
    assert ran.status == 2
    assert ran.message.startswith("two.toml: line 4: stack[0].size: ")
    assert "free" in ran.message


def test_a_sparse_file_that_may_outgrow_the_free_space_is_not_said_to_take_none(study: Path) -> None:
    stack = 'stack = [{ layer = "file", size = "4096T", overcommit = true }, { layer = "loop" }]'
    Path("two.toml").write_text(STUDY.replace('stack = [{ layer = "directory" }]', stack))
    assert "Disk space what is written to sparse files of 4096T (" in planned()


@pytest.mark.parametrize(("warm_up", "notes"), [("1s", 1), ("0s", 0)])
def test_a_load_that_knows_no_warm_up_says_so_before_anything_runs(tmp_path: Path, warm_up: str, notes: int) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'title = "storm"\nstack = [{ layer = "directory" }]\n'
        f'[factors]\nsize = ["1k", "2k"]\n[trial]\nwarm_up = "{warm_up}"\n'
        '[workload.storm]\nfiles = { files = 20, size = "{size}" }\n'
    )
    assert " ".join(call("plan", str(study)).output.split()).count("Note: storm: warm_up is left out") == notes
    assert len(json.loads(call("plan", str(study), "--json").output)["notes"]) == notes


KEPT = """
title = "Kept"
stack = "{place}"
[factors]
bs = ["4k", "64k"]
[factors.place]
here  = [{ layer = "directory", keep = "round" }]
there = [{ layer = "directory", keep = KEEP }]
[workload.write]
fio = { rw = "write", bs = "{bs}", size = "1M" }
"""


@pytest.mark.parametrize(
    ("there", "note"),
    [
        ('"round", path = "/var/tmp"', "Kept for each round by all cells of the same place, which follow each other"),
        ('"trial"', "Kept for each round, by cells that follow each other: directory (cells 1, 3)"),
        ('"round"', "Kept for each round, by cells that follow each other: directory (cells 1–4)"),
    ],
)
def test_what_cells_share_for_a_round_is_told_by_their_levels(study: Path, there: str, note: str) -> None:
    Path("two.toml").write_text(KEPT.replace("KEEP", there))
    assert note in " ".join(planned().split())


def test_a_device_that_is_not_there_is_refused(study: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root block devices are unsupported")
    stack = 'stack = [{ layer = "device", path = "/dev/no-such-disk" }]'
    Path("two.toml").write_text(STUDY.replace('stack = [{ layer = "directory" }]', stack))
    ran = call("plan", "two.toml")
    assert ran.status == 2
    assert ran.message.startswith("two.toml: line 4: stack[0].path: ")
    assert "there is no block device /dev/no-such-disk" in ran.message


def test_the_list_names_every_study_and_every_part() -> None:
    listed = json.loads(call("list", "--json").output)
    text = call("list").output
    needs = {name: entry["needs"] for name, entry in listed["studies"].items()}
    assert needs == {
        "alignment": ["root"],
        "network-block": ["virtual machines"],
        "quick": ["root"],
        "quick-directory": [],
        "queue-depth": [],
        "shared-folder-options": ["virtual machines"],
        "database-variability": ["root"],
        "shared-folders": ["virtual machines"],
        "shared-folders-network": ["root", "virtual machines"],
        "vm-backing": ["virtual machines"],
    }
    assert "virtual machines" in text
    assert set(listed) == {"studies", "layers", "workloads", "probes"}
    for entries in listed.values():
        for name, entry in entries.items():
            assert name in text
            purpose = entry["title"] if isinstance(entry, dict) else entry
            assert purpose
    assert all(Path(entry["file"]).is_file() for entry in listed["studies"].values())


def test_the_schema_that_is_printed_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(call("schema").output))
