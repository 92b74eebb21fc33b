"""Virtual machines in studies: hardware by cell, disks that cross nodes, profiles of parameters."""

from __future__ import annotations

import pytest

from storlab.errors import StudyError, UserError
from storlab.layers.virtio_blk import VirtioBlkLayer
from storlab.study.cells import Cell
from storlab.study.study import Study, parse_study

LOAD = '[workload.load]\nfio = { rw = "write", size = "1M" }\n'
ON_STORAGE = """
[nodes.vm]
kind = "vm"
count = 2
disk_on = "storage"
disk = [{ layer = "mkfs", type = "xfs" }, { layer = "mount" }, { layer = "file", size = "64M" }]
[nodes.storage]
kind = "vm"
disk = [{ layer = "file", size = "1G" }]
"""


def study(text: str, *overrides: str) -> Study:
    whole = f'title = "x"\n{text}\n{LOAD if "[workload" not in text else ""}'
    return parse_study(whole.encode(), "s.toml", lambda name: "", overrides, ())


def cell(text: str, *overrides: str) -> Cell:
    (only,) = study(text, *overrides).cells
    return only


def labels(cell: Cell, group: str) -> list[str]:
    return [layer.layer for layer in cell.disks[group].layers]


def test_every_key_of_the_hardware_may_be_a_factor() -> None:
    cells = study(
        'stack = [{ layer = "directory" }]\n[factors]\nmemory = ["256M", "1G"]\nstart = ["cold", "restored"]\n'
        'boot = ["quiet", "mitigations=off"]\n[nodes.vm]\nkind = "vm"\nmemory = "{memory}"\nstart = "{start}"\n'
        'kernel_args = "{boot}"\n'
    ).cells
    found = [(each.nodes["vm"].memory, each.nodes["vm"].start, each.nodes["vm"].kernel_args) for each in cells]
    assert len(set(found)) == len(cells) == 8
    assert (256 * 1024**2, "cold", "mitigations=off") in found


def test_a_disk_is_attached_by_virtio_blk_unless_it_says_how() -> None:
    vm = '[nodes.vm]\nkind = "vm"\ndisk = [{ layer = "file", size = "1G" }'
    default = cell(f"{vm}]")
    assert labels(default, "vm") == ["file", "virtio-blk"]
    assert isinstance(default.disks["vm"].layers[-1], VirtioBlkLayer)
    assert default.disks["vm"].on == "host"
    assert default.stacks["vm"] == ()
    assert labels(cell(f'{vm}, {{ layer = "nvme" }}]'), "vm") == ["file", "nvme"]


def test_groups_come_after_those_that_their_disks_are_made_on_wherever_they_are_written() -> None:
    made = cell(ON_STORAGE)
    assert made.in_order == ["storage", "vm"]
    assert made.serving == {"storage"}
    assert [load.on for load in made.loads] == [("vm",)], "what serves others has no load unless it is given one"
    assert labels(made, "vm") == ["mkfs", "mount", "file", "virtio-blk"]


def test_a_storage_host_with_a_load_of_its_own_does_not_only_serve() -> None:
    both = '[workload.load]\non = ["vm", "storage"]\nfio = { rw = "write", size = "1M" }\n'
    made = cell(ON_STORAGE + both)
    assert made.serving == set()


def test_the_studys_stack_goes_on_above_a_disk() -> None:
    made = cell(
        'stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]\n'
        '[nodes.vm]\nkind = "vm"\ndisk = [{ layer = "file", size = "1G" }]\n'
    )
    assert [layer.layer for layer in made.stacks["vm"]] == ["mkfs", "mount"]
    assert made.origins["vm"] == (("stack", 0), ("stack", 1))


PROFILES = """
stack = [{ layer = "directory" }]
[parameters]
size = "1M"
time = "1s"
[profiles.full]
size = "1G"
[profiles.long]
time = "1h"
[workload.load]
fio = { rw = "write", size = "{size}", runtime = "{time}" }
"""


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        ((), {"size": "1M", "time": "1s"}),
        (("profile=full",), {"size": "1G", "time": "1s"}),
        (("profile=long",), {"size": "1M", "time": "1h"}),
        (("profile=full", "size=2G"), {"size": "2G", "time": "1s"}),
        (("size=2G", "profile=full"), {"size": "2G", "time": "1s"}),
        (("profiles.full.time=5s", "profile=full"), {"size": "1G", "time": "5s"}),
    ],
)
def test_a_profile_changes_parameters_and_what_is_set_by_itself_counts_more(
    overrides: tuple[str, ...], values: dict[str, str]
) -> None:
    assert dict(study(PROFILES, *overrides).model.parameters) == values


def test_a_profile_that_is_not_there_is_refused_with_the_ones_that_are() -> None:
    with pytest.raises(UserError, match=r"there is no profile 'ful'; did you mean 'full'\?"):
        study(PROFILES, "profile=ful")


def test_what_does_not_fit_is_told_where_it_was_written() -> None:
    with pytest.raises(StudyError) as raised:
        study(ON_STORAGE.replace('{ layer = "file", size = "64M" }', '{ layer = "loop" }'))
    (problem,) = raised.value.problems
    assert problem.key == "nodes.vm.disk[2]"
    assert problem.line is not None
