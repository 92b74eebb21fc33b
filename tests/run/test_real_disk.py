"""A real disk in place of what studies begin with: by the same key in every study, and refused as any device is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.devices import Device, new_device, sh
from storlab.study.study import load_study, named_studies
from study.program import Ran, call

pytestmark = pytest.mark.needs("root")
SHARED = {"shared-folders", "shared-folders-network", "shared-folder-options", "boot-storm"}
"""Studies of folders, which no disk can take the place of."""
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "device.toml")
EARLIER = {
    "large-folios": "there is no kernel at",
    "snia-pts": "purge destroys all that is on",
    "zfs-async-dio": "is no source tree of OpenZFS",
    "zfs-versions": "is no source tree of OpenZFS",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Device]:
    with new_device(tmp_path / "disk", 80 * 1024**3) as made:
        yield made


def plan(name: str, *sets: str) -> Ran:
    return call("plan", name, *(word for each in sets for word in ("--set", each)))


@pytest.mark.parametrize("name", sorted(named_studies()))
def test_every_study_that_ships_takes_a_disk_by_the_same_key_or_says_what_to_write(name: str, disk: Device) -> None:
    named = f"disk={disk.path}"
    if name in SHARED:
        assert f"--set {named}: no stack of this study begins with a disk" in plan(name, named).message
        return
    declared = [each for cell in load_study(named_studies()[name], [named]).cells for each in cell.declared]
    assert {layer.claims() for each in declared for layer in each.layers} - {None} == {disk.path}
    assert not {each.layers[0].layer for each in declared if each.source == "host"} & {"file", "loop"}
    sh("mkfs.ext4", "-q", disk.path)
    assert EARLIER.get(name, "signature of ext4") in plan(name, named).message


def test_a_disk_with_data_is_refused_until_it_is_named_again_and_one_in_use_always(disk: Device) -> None:
    named, again = f"disk={disk.path}", f"wipe={disk.path}"
    assert plan("quick", named).status == 0
    assert "write disk =" in plan("quick", again).message
    assert "must be the path of a device" in plan("quick", "disk=nvme0n1").message
    sh("mkfs.ext4", "-q", disk.path)
    assert (
        f'signature of ext4: its data would be lost. Write wipe = "{disk.path}" as well' in plan("quick", named).message
    )
    assert "write the same path twice" in plan("quick", named, "wipe=/dev/null").message
    assert [plan(each, named, again).status for each in ("quick", EXAMPLE)] == [0, 0]
    sh("mount", "--mkdir", disk.path, f"{disk.image}-here")
    try:
        assert "is mounted" in plan("quick", named, again).message
    finally:
        sh("umount", disk.path)


@pytest.mark.parametrize(("value", "found"), [("2G", (None, "2G")), ("/dev/sdx", ("/dev/sdx", "1G"))])
def test_a_size_is_that_of_the_file_where_the_parameter_has_the_name_of_the_key(value: str, found: object) -> None:
    model = load_study(named_studies()["mail"], [f"disk={value}"]).model
    assert (model.disk, model.parameters["disk"]) == found


@pytest.mark.parametrize(
    ("name", "cells", "load"), [("alignment", 8, "nrfiles=1000000"), ("database-variability", 4, "runtime=43200.0")]
)
def test_the_profile_seed_is_planned_on_a_disk_as_it_was_published(
    name: str, cells: int, load: str, disk: Device
) -> None:
    study = load_study(named_studies()[name], ["profile=seed"])
    assert load in repr(study.cells[0].loads[0].workload)
    planned = plan(name, f"disk={disk.path}", "profile=seed")
    assert (planned.status, planned.message) == (0, ""), "a loop device of 80G, sparse, has room for it"
    assert f"{cells} cells" in planned.output
