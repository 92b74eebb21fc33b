"""Directories and mounts: work in somebody else's folder, what its undoing leaves alone, and mounts that fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from laboratory import Laboratory
from laboratory.devices import sh
from laboratory.samples import sample
from laboratory.studies import directory
from storlab.base.errors import CommandFailed, StorlabError, Unsupported
from storlab.layers.fs.mount import is_refusal
from storlab.layers.resources import Disk, Share
from storlab.layers.share.nfs import NfsLayer
from storlab.nodes.kinds.local import local_node
from storlab.nodes.undo import refuse_foreign
from storlab.run.beginning import new_run_id
from storlab.run.recovery.undoing import undo_table

from .sites import RUN, Ground, parse

LOOP = '[{ layer = "file", size = "16M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]'


def in_directory(path: Path, argv: str) -> str:
    """A study on an existing directory."""
    return directory(f"command = {{ argv = {argv} }}", stack=f'[{{ layer = "directory", path = "{path}" }}]')


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_of_the_user_stay_as_they_are_and_storlab_works_in_a_folder_of_its_own(lab: Laboratory) -> None:
    theirs = lab.folder / "data"
    (theirs / ".storlab-notes").mkdir(parents=True)
    (theirs / "storlab.img").write_text("mine")
    (theirs / ".storlab-notes" / "a").write_text("mine too")
    before = contents(theirs)
    lab.execute(in_directory(theirs, '["sh", "-c", "cp -r $0/.. $0/copy 2>/dev/null; echo $0", "{target}"]'))
    (record,) = lab.records()
    assert record.status == "done", record.reason
    target = Path((lab.out / "trials" / "0001" / "host" / "load" / "stdout").read_text().strip())
    assert target.parent == theirs
    assert target.name.startswith(f".storlab-{lab.run_folder.manifest.run}")
    assert contents(theirs) == before
    assert lab.leftovers() == []


def test_a_load_that_links_out_of_its_folder_does_not_lead_the_removal_astray(lab: Laboratory) -> None:
    theirs = lab.folder / "data"
    theirs.mkdir()
    (theirs / "file").write_text("mine")
    lab.execute(in_directory(theirs, '["ln", "--symbolic", "../", "{target}/up"]'))
    assert [record.status for record in lab.records()] == ["done"]
    assert contents(theirs) == {"file": "mine"}
    assert [path.name for path in theirs.iterdir()] == ["file"]


@pytest.mark.needs("root")
def test_a_directory_behind_a_link_and_with_blanks_in_its_name_is_torn_down_too(lab: Laboratory) -> None:
    """The kernel names mounts and loop devices by real paths."""
    real = lab.folder / "a real\tfolder"
    real.mkdir()
    link = lab.folder / "link"
    link.symlink_to(real)
    is_torn_down(lab, LOOP.replace("[", f'[{{ layer = "directory", path = "{link}" }}, '), real)


@pytest.mark.needs("root")
def test_a_scratch_folder_behind_a_link_is_torn_down_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "real one").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "real one")
    is_torn_down(Laboratory(tmp_path), LOOP, tmp_path / "real one")


def is_torn_down(lab: Laboratory, stack: str, real: Path) -> None:
    lab.succeed(directory('command = { argv = ["touch", "{target}/a"] }', stack=stack))
    assert list(real.iterdir()) == []


FOREIGN = json.loads(sample(__file__, "cases/left-alone.json"))
"""What an undo of a damaged or hostile journal may name, and its arguments, in ``{tmp}`` or of the ``{run}``."""


@pytest.mark.parametrize(("name", "arguments"), FOREIGN)
async def test_no_undoing_touches_what_is_not_storlabs(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    words = {"{tmp}": str(tmp_path), "{run}": RUN}
    filled = {
        key: value and re.sub("{tmp}|{run}", lambda word: words[word[0]], value) for key, value in arguments.items()
    }
    async with local_node("host") as node:
        with pytest.raises(StorlabError, match="left alone"):
            await undo_table()[name].function(node, **filled)
    assert contents(tmp_path) == {"precious/file": "mine"}


@pytest.mark.needs("root")
async def test_a_parameter_of_zfs_that_was_something_else_by_the_note_of_it_is_left_alone(ground: Ground) -> None:
    entry = {"parameter": "storlab_has_no_such", "value": "7", "run": RUN}
    note = Path(f"/run/storlab/zfs/{RUN}.{entry['parameter']}")
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("5")
    with pytest.raises(StorlabError, match="was 5, and not 7: left alone"):
        await undo_table()["zfs.parameter"].function(ground.node, **entry)
    note.unlink()
    assert await undo_table()["zfs.parameter"].function(ground.node, **entry) is None


def test_every_run_has_a_name_that_its_undoing_knows() -> None:
    run = new_run_id()
    refuse_foreign(f"/var/tmp/storlab-{run}", itself=True)
    refuse_foreign(f"/data/.storlab-{run}-host-0", itself=True)
    refuse_foreign(f"/var/tmp/storlab-{run}/host-0123456789ab/0-file.img")


@pytest.mark.needs("root")
async def test_the_removal_of_a_scratch_folder_stops_at_file_systems_mounted_in_it(lab: Laboratory) -> None:
    inside = lab.scratch / f"storlab-{RUN}" / "mnt"
    inside.mkdir(parents=True)
    sh("mount", "-t", "tmpfs", "none", str(inside))
    try:
        (inside / "file").write_text("mine")
        async with local_node("host") as node:
            with pytest.raises(StorlabError):
                await undo_table()["scratch.remove"].function(node, path=str(inside.parent))
        assert (inside / "file").read_text() == "mine"
    finally:
        sh("umount", str(inside))


MADE = ({"layer": "file", "size": "32M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "ext4"})


async def mount(ground: Ground, *spoil: str, **keys: Any) -> None:
    """Mount an ext4 file system, after it was spoilt by these arguments of dd."""
    disk = (await ground.set_up(*MADE)).resource
    assert isinstance(disk, Disk)
    if spoil:
        sh("dd", "if=/dev/zero", f"of={disk.path}", "bs=1k", "conv=notrunc,fsync", *spoil)
    (layer,) = parse([{"layer": "mount", **keys}])
    await layer.set_up(disk, ground.context(3))


@pytest.mark.needs("root")
@pytest.mark.parametrize("spoil", [("count=64",), ("seek=2", "count=1"), ("seek=1", "count=1")])
async def test_a_file_system_that_is_damaged_is_no_limit_of_the_kernels(ground: Ground, spoil: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed, match="mount"):
        await mount(ground, *spoil)


@pytest.mark.needs("root")
@pytest.mark.parametrize("said", ["Unknown parameter 'max_inline'", "Bad value for 'commit'"])
async def test_an_option_that_the_kernel_does_not_take_is_unsupported_in_its_words(ground: Ground, said: str) -> None:
    with pytest.raises(Unsupported, match=f"^the kernel does not mount it: ext4: {said}$"):
        await mount(ground, options=f"noatime,{said.split()[-1][1:-1]}={10**15}")


@pytest.mark.needs("root")
async def test_a_share_that_can_not_be_mounted_is_named_with_the_reason_of_mount(ground: Ground) -> None:
    (layer,) = parse([{"layer": "nfs"}])
    assert isinstance(layer, NfsLayer)
    argv = ["mount", "-t", "nosuch", "nothing", ground.scratch]
    with pytest.raises(CommandFailed, match=r"can't mount nfs://a:1/b of node s: mount: .*: special device nothing"):
        await layer.mounted(argv, Share("s", "nfs", "a", 1, "/b"), ground.context())


SAID_BY_MOUNT = json.loads(sample(__file__, "cases/said-by-mount.json"))
"""Whether this kernel will never do it, what mount(8) says, and what the kernel says."""


@pytest.mark.parametrize(("refused", "said", "kernel"), SAID_BY_MOUNT)
def test_only_what_the_kernel_will_refuse_again_is_unsupported(refused: bool, said: str, kernel: str) -> None:
    asked = "mount -t x /dev/loop0 /m" if refused else "mount -o nosuch,unsupported /m"
    assert is_refusal(CommandFailed("mount failed", f"$ {asked}\nmount: /m: {said}"), kernel) is refused
