"""How a plan shows stacks that cross nodes, and what the nodes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.cli.plan.nodes import cells_text, memory_text, needs_list, node_lines, nodes_as_data, stack_rows
from storlab.images.image import Image
from storlab.nodes.kinds.vm.accelerator import Acceleration
from storlab.nodes.kinds.vm.command import Accelerator
from storlab.nodes.kinds.vm.confinement import UNCONFINED
from storlab.nodes.kinds.vm.kind import Boot
from storlab.run.planning.plan import Plan
from storlab.run.setup.space import Memory
from storlab.study.schema import group_model
from storlab.study.study import Study, load_study, parse_study, shipped_studies

GIB = 1024**3
IMAGE = Image("debian", Path("k"), Path("i"), (), "6.12", frozenset(), frozenset(), frozenset(), {})


def study(text: str) -> Study:
    def read(name: str) -> str:
        raise ValueError(name)

    load = '\n[workload.w]\nfio = { rw = "write", size = "1M" }\n'
    return parse_study(f'title = "x"\n{text}{load}'.encode(), "s.toml", read)


@pytest.mark.parametrize(
    ("numbers", "text"), [([1, 2, 3, 7], "1–3, 7"), ([2], "2"), ([1, 3, 5], "1, 3, 5"), (list(range(1, 11)), "all")]
)
def test_cells_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert cells_text(numbers, 10) == text


def test_a_stack_that_crosses_nodes_is_told_once_from_its_foundation_into_the_machine() -> None:
    cells = load_study(shipped_studies()["vm-backing"]).cells
    assert needs_list(cells)
    rows = stack_rows(cells)
    chain = "storage: zpool → zvol clone → nbd-export ⇢ vm: virtio-blk none → mkfs ext4 → mount"
    assert rows[0] == ("1–2", "vm ×4", chain)
    assert rows[1][2].startswith("storage: zpool sync=disabled → ")
    assert rows[-1] == ("all", "storage", "host: file 4G ⇢ storage: virtio-blk none")


def test_a_machine_whose_load_runs_on_the_bare_disk_ends_with_that() -> None:
    cells = study('[nodes.vm]\nkind = "vm"\nstack = [{ layer = "file", size = "64M" }, { layer = "nvme" }]').cells
    assert stack_rows(cells) == [("all", "vm", "host: file 64M ⇢ vm: nvme none")]


def test_nodes_without_a_stack_are_not_listed() -> None:
    nodes = '[factors]\nwho = ["a", "b"]\n[nodes.a]\n[nodes.b]\n[workload.v]\non = "{who}"\nfio = { size = "1M" }'
    cells = study(f'stack = [{{ layer = "directory" }}]\n{nodes}\n[trial]\nworkloads = ["v"]').cells
    assert stack_rows(cells) == [("1", "a", "directory"), ("2", "b", "directory")]
    assert not needs_list(cells)


def test_a_machine_is_described_by_what_is_not_usual() -> None:
    vm = group_model("vm")
    assert vm.model_validate({}).describe() == "512M, 1 CPU"
    odd = {"cpus": 2, "machine": "pc", "pin": "0-1", "numa": "0", "start": "cold"}
    text = "512M, 2 CPUs, pc, pinned to CPUs 0-1, on NUMA node 0, booted each time"
    assert vm.model_validate(odd).describe() == text


def test_a_level_without_a_crossing_is_shown_on_the_nodes_where_it_is_set_up() -> None:
    """A crossing that was forgotten must not measure a guest's memory in silence."""
    cells = study(
        '[factors.disk]\nguest = [{ layer = "loop" }]\nhost = [{ layer = "virtio-blk" }]\n[nodes.vm]\nkind = "vm"\n'
        'stack = [{ layer = "file", size = "64M" }, "{disk}"]\n'
    ).cells
    assert stack_rows(cells) == [("1", "vm", "file 64M → loop"), ("2", "vm", "host: file 64M ⇢ vm: virtio-blk none")]


def planned(accelerator: Accelerator, reason: str = "") -> Plan:
    levels = '[factors]\ncpus = [1, 2]\n[nodes.vm]\nkind = "vm"\ncount = 2\ncpus = "{cpus}"\n'
    made = study(f'{levels}stack = [{{ layer = "file", size = "64M" }}, {{ layer = "virtio-blk" }}]')
    prepared = Boot(IMAGE, Path("i"), Acceleration(accelerator, reason), "", UNCONFINED)
    return Plan(made, 0, (1, 1), {}, 0, 0, prepared={"vm": prepared}, memory=Memory(3 * GIB // 2, 8 * GIB))


def test_machines_that_are_a_factor_are_told_with_all_that_they_can_be() -> None:
    emulated = planned("tcg", "there is no /dev/kvm")
    lines = node_lines(emulated)
    assert lines == ["vm: 2 × 512M, 1 CPU or 2 × 512M, 2 CPUs", "image debian", "emulated, without KVM"]
    assert emulated.cautions[0].endswith("not for absolute speeds (there is no /dev/kvm).")
    assert node_lines(planned("kvm"))[2].startswith("with KVM")


def test_memory_is_told_beside_what_there_is() -> None:
    assert memory_text(planned("kvm")) == "1.5G of 8.0G available, QEMU's own included"


def test_programs_get_each_cells_machines() -> None:
    data = nodes_as_data(planned("kvm"))["vm"]
    assert data["accelerator"] == "kvm"
    assert {cell: machine["cpus"] for cell, machine in data["machines"].items()} == {"1": 1, "2": 2}
