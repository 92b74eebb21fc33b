"""Nodes whose kind --set changes: one study here, in guests, and on other machines."""

import pytest

from laboratory.studies import ON_LOOP, parsed
from storlab.base.errors import StudyError
from storlab.study.study import Study, load_study, shipped_studies

PLAIN = f"stack = [{ON_LOOP}]\n"
GUESTS = """
[factors]
cache = ["none", "writeback"]
fs    = ["ext4", "xfs"]
[nodes.vm]
kind   = "vm"
count  = 4
memory = "1G"
stack  = [
  { layer = "file", size = "1G" }, { layer = "virtio-blk", cache = "{cache}" }, { layer = "mkfs", type = "{fs}" },
  { layer = "mount" },
]
"""


def study(text: str, *overrides: str, only: tuple[str, ...] = ()) -> Study:
    load = 'title = "x"\nworkload.load.fio = { rw = "write", size = "1M" }\n'
    return parsed(load + text, *overrides, only=only)


def layers(made: Study, group: str) -> list[list[str]]:
    chains = [cell.chain(group) for cell in made.cells]
    return [[layer.layer for layer in chain.layers] for chain in chains if chain is not None]


def test_a_study_that_names_no_nodes_runs_on_those_of_the_command_line() -> None:
    (cell,) = study(PLAIN, "nodes.lab.hosts=lab1,admin@lab2").cells
    assert [spec.describe() for spec in cell.nodes["lab"].each()] == ["lab1", "admin@lab2"]
    (cell,) = study(PLAIN, "nodes.vm.kind=vm").cells
    assert (cell.nodes["vm"].kind, layers(study(PLAIN, "nodes.vm.kind=vm"), "vm")) == (
        "vm",
        [["file", "loop", "mkfs", "mount"]],
    )


def test_guests_become_machines_without_what_only_guests_have() -> None:
    made = study(GUESTS, "nodes.vm.hosts=lab1", only=("cache=none",))
    assert layers(made, "vm") == [["file", "loop", "mkfs", "mount"]] * 2
    assert [cell.nodes["vm"].number() for cell in made.cells] == [1, 1]
    assert "vm: virtio-blk is left out, because these nodes are of kind ssh and no virtual machines" in made.notes


@pytest.mark.parametrize(
    ("overrides", "only", "says"),
    [
        (["nodes.vm.hosts=lab1"], (), "cache=writeback is the same set-up as another level: choose levels with --only"),
        (["nodes.vm.hosts=lab1", "nodes.vm.memory=2G"], ("cache=none",), 'memory is for nodes of kind "vm"'),
        (["nodes.vm.hosts=lab1", "nodes.vm.kind=vm"], ("cache=none",), 'hosts is for nodes of kind "ssh"'),
    ],
)
def test_what_would_mean_something_else_is_refused(overrides: list[str], only: tuple[str, ...], says: str) -> None:
    with pytest.raises(StudyError) as refused:
        study(GUESTS, *overrides, only=only)
    assert says in str(refused.value)


def test_a_shipped_study_between_guests_is_one_between_machines() -> None:
    words = ["nodes.server.hosts=lab1", "nodes.client.hosts=lab2"]
    path = shipped_studies()["network-block"]
    with pytest.raises(StudyError, match=r"write interface = … in \[nodes.server\]"):
        load_study(path, words)
    plain = ["network={}", "nodes.server.tcp={}", "nodes.client.tcp={}"]
    made = load_study(path, [*words, *plain], ["transport=local,nbd,nfs"])
    assert layers(made, "server") == [["file", "loop"]] * 2
    assert layers(made, "client") == [
        ["file", "loop", "mkfs", "mount"],
        ["mkfs", "mount", "nfs-export", "nfs"],
        ["nbd-export", "nbd", "mkfs", "mount"],
    ]
    assert not any(cell.shaped(group) for cell in made.cells for group in cell.nodes)
