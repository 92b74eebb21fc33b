"""``storlab plan``: what it prints for people and programs, what it foresees, and how it shows nodes."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from laboratory.samples import sample
from laboratory.studies import parsed
from laboratory.trust import allowing
from storlab.analysis.summary import Comparison, Summary, to_json
from storlab.cli.plan.tables import cells_text, memory_text, needs_list, node_lines, nodes_as_data, stack_rows
from storlab.cli.plan.view import time_text
from storlab.findings.rounds import NotPaired
from storlab.images.image import Image
from storlab.nodes.kinds.vm.emulator import UNCONFINED, Acceleration, Accelerator, Emulator
from storlab.nodes.kinds.vm.kind import Boot
from storlab.records.files import write_whole
from storlab.run.planning.plan import Plan
from storlab.run.planning.space import Room
from storlab.study.schema import group_model
from storlab.study.study import Study, load_study, shipped_studies
from study.program import call

GOLDEN = Path(__file__).parent / "golden"
STUDY = sample(__file__, "cases/plan.toml")
DIRECTORY, RW = '"directory"', 'rw = "randwrite"'


@pytest.fixture(autouse=True)
def study(here: Path) -> Path:
    Path("two.toml").write_text(STUDY)
    return here


def planned(*arguments: str) -> str:
    ran = call("plan", "two.toml", *arguments)
    assert (ran.status, ran.message) == (0, "")
    return ran.output


def test_a_plan_fits_eighty_columns(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = re.sub(r" +$", "", re.sub(r"\d+G free", "N free", planned("--seed", "7")), flags=re.M)
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
    assert plan == made(7) and plan["order"] != made(8)["order"] and len(plan["cells"]) == 6
    assert plan["rounds"] == {"min": 2, "max": 4}
    assert all(sorted(order) == [1, 2, 3, 4, 5, 6] for order in plan["order"].values())
    assert plan["seconds_per_round"] == pytest.approx(6 * 2.5)


def test_rounds_only_and_set_change_the_plan_and_without_a_seed_there_is_no_order_yet(study: Path) -> None:
    plan = json.loads(planned("--json", "--rounds", "3", "--only", "bs=4k", "--set", "title=Other"))
    assert plan["rounds"] == {"min": 3, "max": 3} and plan["factors"]["bs"] == ["4k"] and plan["title"] == "Other"
    assert [cell["cell"] for cell in plan["cells"]] == [1, 2, 3]
    assert json.loads(planned("--json", "--seed", "0"))["order"] is not None
    assert json.loads(planned("--json"))["order"] is None


@pytest.mark.parametrize(
    ("command", "behind", "more", "where", "says"),
    [
        ("plan", DIRECTORY, 'path = "/nowhere"', "line 3: stack[0]: ", "there is no directory /nowhere"),
        ("run", DIRECTORY, 'path = "relative"', "line 3: stack[0]: ", "write an absolute path"),
        ("run", DIRECTORY, 'path = "/etc/hostname"', "line 3: stack[0]: ", "there is no directory /etc"),
        ("plan", RW, "io_siz = 1", "line 12: workload.random-write.fio.io_siz: ", "can set; did you mean 'io_size'?"),
        ("plan", RW, "time-based = 1", "line 12: workload.random-write.fio.time-based: ", "fio knows no option time-b"),
        ("run", RW, 'ioengine = "psink"', "line 12: workload.random-write.fio.ioengine: ", "did you mean 'psync'?"),
        ("run", RW, 'ioengine = "dircreate"', "line 11: workload.random-write: ", "this fio has no ioengine dircreate"),
        ("plan", RW, "iodepth = -1", "line 11: workload.random-write: ", "iodepth: min value out of range: -1"),
        ("run", RW, 'rwmixread = "many"', "line 12: workload.random-write.fio.rwmixread: ", "it takes numbers"),
    ],
)
def test_what_is_not_there_and_what_fio_does_not_know_is_refused(
    command: str, behind: str, more: str, where: str, says: str, study: Path
) -> None:
    Path("two.toml").write_text(STUDY.replace(behind, f"{behind}, {more}"))
    ran = call(*allowing([command, "two.toml"]))
    assert ran.status == 2 and ran.message.startswith(f"two.toml: {where}") and says in ran.message
    assert ran.message.count("\n") == 1
    assert [path.name for path in study.iterdir()] == ["two.toml"]


def with_stack(*layers: str) -> None:
    Path("two.toml").write_text(STUDY.replace('{ layer = "directory" }', ", ".join(layers)))


def test_a_file_larger_than_the_free_space_and_a_device_that_is_not_there_are_refused(study: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root block devices are unsupported, and so nothing takes space")
    with_stack('{ layer = "file", size = "4096T" }', '{ layer = "loop" }')
    ran = call("plan", "two.toml")
    assert ran.status == 2 and ran.message.startswith("two.toml: line 3: stack[0].size: ") and "free" in ran.message
    with_stack('{ layer = "device", path = "/dev/no-such-disk" }')
    ran = call("plan", "two.toml", "--allow", "device=/dev/no-such-disk")
    assert ran.status == 2 and ran.message.startswith("two.toml: line 3: stack[0].path: ")
    assert "there is no block device /dev/no-such-disk" in ran.message


def test_a_sparse_file_that_may_outgrow_the_free_space_is_not_said_to_take_none(study: Path) -> None:
    with_stack('{ layer = "file", size = "4096T", overcommit = true }', '{ layer = "loop" }')
    assert "Disk space what is written to sparse files of 4096T (" in " ".join(planned().split())


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


KEPT = sample(__file__, "cases/plan-kept.toml")


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


def test_notes_and_problems_that_differ_in_numbers_alone_are_a_few_lines_however_many_there_are() -> None:
    parameters = "".join(f"p{number} = 1\n" for number in range(500))
    Path("two.toml").write_text(f"{STUDY}[parameters]\n{parameters}")
    notes = json.loads(planned("--json"))["notes"]
    assert [note for note in notes if "p0 is" in note or "p2 is" in note] == [notes[at] for at in (1, 3)]
    assert notes[4:] == ["and 497 more that differ from the last in numbers alone"]
    levels = ", ".join(f'"{number}"' for number in range(1, 1001))
    file = '{ layer = "file", size = "{bs}x" }'
    Path("two.toml").write_text(STUDY.replace('["4k", "64k"]', f"[{levels}]").replace('{ layer = "directory" }', file))
    refused = call("plan", "two.toml")
    assert (refused.status, refused.output) == (2, "")
    first, *_, last = refused.message.splitlines()
    assert "two.toml: line 3:" in first and '"1x" is not a size' in first and len(refused.message) < 2000
    assert last == "and 997 more that differ from the last in numbers alone"


def test_a_program_of_the_studys_own_that_is_not_there_is_refused() -> None:
    ran = call("plan", "regression", "--set", "new=/no/such")
    assert (ran.status, ran.message.rpartition(": line 21: ")[2]) == (2, NO_PROGRAM)


NO_PROGRAM = 'workload.copy.command.argv[0]: there is no program "/no/such" on node host: write where it is\n'
THREE = sample(__file__, "cases/plan-three.toml")


def test_of_many_cells_and_levels_the_first_and_the_last_are_shown() -> None:
    levels = ", ".join(f'"l{number}"' for number in range(60))
    Path("three.toml").write_text(THREE.replace("MOST", "30").replace('"a", "b", "c"', levels))
    text = call("plan", "three.toml", "--seed", "1").output
    assert " … " in text and "153 more" in text and len(text.splitlines()) < 100
    assert len(json.loads(call("plan", "three.toml", "--json").output)["cells"]) == 180


def test_a_plan_with_guests_is_shown_before_there_is_an_image_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = " ".join(call("plan", "network-block").output.split())
    assert "Note: there is no guest image in" in text and " Question " in text


def foreseen(most: int, *words: str) -> tuple[str, dict[str, Any]]:
    Path("three.toml").write_text(THREE.replace("MOST", str(most)))
    text, data = call("plan", "three.toml", *words), call("plan", "three.toml", "--json", *words)
    assert text.status == data.status == 0, "it warns and never refuses"
    return " ".join(text.output.split()), json.loads(data.output)["foresight"]


def test_six_rounds_for_twelve_comparisons_are_warned_of_and_levels_left_out_are_not_counted() -> None:
    text, data = foreseen(6)
    assert data["comparisons"] == 12, "three pairs in each of three modes, and pooled"
    assert data["fewest_rounds_alone"] > 6
    assert data["warning"] in text and "Warning: This can hardly decide anything: it stops after 6 rounds" in text
    assert foreseen(30)[1]["warning"] is None
    assert "can't decide anything" in foreseen(30, "--rounds", "1")[1]["warning"]
    assert foreseen(30, "--only", "build=a,b", "--only", "mode=x")[1]["comparisons"] == 1
    assert foreseen(30, "--only", "build=a")[1] is None, "nothing is compared"


def test_a_plan_has_the_questions_of_its_levels_and_no_verdict_before_its_least_number_of_rounds() -> None:
    text = " ".join(call("plan", "vm-backing").output.split())
    pair = "zvol-clone against file-on-zfs, with bs fixed"
    assert f"Question bandwidth: {pair} write.amplification.backing: {pair} claim: A regular file" in text
    assert "claim, not answered: There are only small differences between rdsk and dsk: This run has no cache=" in text
    assert "6 to 7 rounds)" in text and "Verdicts after 6 rounds at the earliest" in text
    only = " ".join(call("plan", "vm-backing", "--only", "backing=file-on-zfs").output.split())
    assert "Question nothing of backing: each pair has a level that is left out" in only


def test_a_run_that_can_decide_nothing_begins_with_that_warning_alone() -> None:
    foreseen(1)
    words = ("run", "three.toml", "--only", "mode=x", "--only", "build=a,b", "--out")
    loud, quiet = call(*words, "loud"), call(*words, "quiet", "--quiet")
    assert (loud.status, quiet.status) == (0, 0)
    for said in (loud.message, quiet.message):
        assert "Warning: This can't decide anything: there is only 1 round, and a verdict takes at least 5." in said
        assert "Verdicts" not in said  # after how many they come stands in the warning


def test_the_noise_of_the_last_run_of_the_same_study_goes_before_an_assumption() -> None:
    assert "an assumption" in foreseen(30)[0]
    compared = Comparison(
        factor="build", a="a", b="b", within={}, pooled=True, source="load", metric="took", unit="s", better="lower",
        rounds=20, ratio=1.1, low=0.9, high=1.3, confidence=0.99, margin=0.1, verdict="undecided",
        reason=NotPaired("one side"),
    )  # fmt: skip
    for name, title in (("three-1", "Three programs"), ("three-2", "Another study"), ("three-3", "")):
        made = Path("runs", name)
        made.mkdir(parents=True)
        summary = Summary(title, "took", 0.95, 20, None, comparisons=(compared,))
        write_whole(made / "summary.json", to_json(summary) if title else b"{")
    text, data = foreseen(30)
    assert "as in its last run, runs/three-1" in text
    assert 0.1 < data["noise"]["sd"] < 0.5


GIB = 1024**3
IMAGE = Image("debian", Path("k"), Path("i"), (), "6.12", frozenset(), frozenset(), frozenset(), {})


def made(text: str) -> Study:
    return parsed(f'title = "x"\n{text}\n[workload.w]\nfio = {{ rw = "write", size = "1M" }}\n')


@pytest.mark.parametrize(
    ("numbers", "text"), [([1, 2, 3, 7], "1–3, 7"), ([2], "2"), ([1, 3, 5], "1, 3, 5"), (list(range(1, 11)), "all")]
)
def test_cells_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert cells_text(numbers, 10) == text


def test_a_stack_that_crosses_nodes_is_told_once_from_its_foundation_into_the_machine() -> None:
    cells = load_study(shipped_studies()["vm-backing"], only=["backing=zvol-clone,zvol-clone-nosync"]).cells
    assert needs_list(cells)
    rows = stack_rows(cells)
    chain = "storage: zpool → zvol clone → nbd-export ⇢ vm: virtio-blk none → mkfs ext4 → mount"
    assert rows[0] == ("1–2", "vm ×2", chain) and rows[1][2].startswith("storage: zpool sync=disabled → ")
    assert rows[-1] == ("all", "storage", "host: file 4G ⇢ storage: virtio-blk none")


def test_a_machine_on_the_bare_disk_ends_with_that_and_nodes_without_a_stack_are_not_listed() -> None:
    cells = made('[nodes.vm]\nkind = "vm"\nstack = [{ layer = "file", size = "64M" }, { layer = "nvme" }]').cells
    assert stack_rows(cells) == [("all", "vm", "host: file 64M ⇢ vm: nvme none")]
    nodes = '[factors]\nwho = ["a", "b"]\n[nodes.a]\n[nodes.b]\n[workload.v]\non = "{who}"\nfio = { size = "1M" }'
    cells = made(f'stack = [{{ layer = "directory" }}]\n{nodes}\n[trial]\nworkloads = ["v"]').cells
    assert stack_rows(cells) == [("1", "a", "directory"), ("2", "b", "directory")] and not needs_list(cells)


def test_a_machine_is_described_by_what_is_not_usual() -> None:
    vm = group_model("vm")
    assert vm.model_validate({}).describe() == "512M, 1 CPU"
    odd = {"cpus": 2, "machine": "pc", "pin": "0-1", "numa": "0", "start": "cold", "qemu": "/opt/qemu"}
    text = "512M, 2 CPUs, pc, pinned to CPUs 0-1, on NUMA node 0, booted each time, in /opt/qemu"
    assert vm.model_validate(odd).describe() == text


def test_a_level_without_a_crossing_is_shown_on_the_nodes_where_it_is_set_up() -> None:
    """A crossing that was forgotten must not measure a guest's memory in silence."""
    cells = made(
        '[factors.disk]\nguest = [{ layer = "loop" }]\nhost = [{ layer = "virtio-blk" }]\n[nodes.vm]\nkind = "vm"\n'
        'stack = [{ layer = "file", size = "64M" }, "{disk}"]\n'
    ).cells
    assert stack_rows(cells) == [("1", "vm", "file 64M → loop"), ("2", "vm", "host: file 64M ⇢ vm: virtio-blk none")]


def machines(accelerator: Accelerator, reason: str = "") -> Plan:
    levels = '[factors]\ncpus = [1, 2]\n[nodes.vm]\nkind = "vm"\ncount = 2\ncpus = "{cpus}"\n'
    read = made(f'{levels}stack = [{{ layer = "file", size = "64M" }}, {{ layer = "virtio-blk" }}]')
    prepared = Boot(IMAGE, Path("i"), Acceleration(accelerator, reason), Emulator("", ""), UNCONFINED)
    return Plan(read, 0, (1, 1), {}, Room(0, 0), prepared={"vm": prepared}, memory=Room(3 * GIB // 2, 8 * GIB))


def test_machines_that_are_a_factor_are_told_with_all_that_they_can_be_and_their_memory() -> None:
    emulated = machines("tcg", "there is no /dev/kvm")
    lines = node_lines(emulated)
    assert lines == ["vm: 2 × 512M, 1 CPU or 2 × 512M, 2 CPUs", "image debian", "emulated, without KVM"]
    assert emulated.cautions[0].endswith("not for absolute speeds (there is no /dev/kvm).")
    assert node_lines(machines("kvm"))[2].startswith("with KVM")
    late = "virtual machines are emulated, and may take several times as long"
    assert time_text(emulated).startswith("at least ") and time_text(emulated).endswith(late)
    assert late not in time_text(machines("kvm"))
    assert memory_text(machines("kvm")) == "1.5G of 8.0G available, QEMU's own included"
    data = nodes_as_data(machines("kvm"))["vm"]
    assert data["accelerator"] == "kvm"
    assert {cell: machine["cpus"] for cell, machine in data["machines"].items()} == {"1": 1, "2": 2}
