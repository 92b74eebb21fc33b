"""Layers that work in somebody else's directory, and the undoing of what they did there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from laboratory import Laboratory, needs_root
from laboratory.devices import sh
from laboratory.studies import directory
from storlab.errors import StorlabError
from storlab.nodes.kinds.local import local_node
from storlab.nodes.undo import refuse_foreign
from storlab.run.executor import new_run_id
from storlab.run.recovery.undoing import undo_table

RUN = "20260102-030405-abcd"
LOOP = '[{ layer = "file", size = "16M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]'


def in_directory(path: Path, argv: str) -> str:
    """A study on an existing directory."""
    study = directory(f"command = {{ argv = {argv} }}")
    return study.replace('{ layer = "directory" }', f'{{ layer = "directory", path = "{path}" }}')


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


@needs_root
def test_a_directory_behind_a_link_and_with_blanks_in_its_name_is_torn_down_too(lab: Laboratory) -> None:
    """The kernel names mounts and loop devices by real paths."""
    real = lab.folder / "a real\tfolder"
    real.mkdir()
    link = lab.folder / "link"
    link.symlink_to(real)
    stack = LOOP.replace("[", f'[{{ layer = "directory", path = "{link}" }}, ')
    study = directory('command = { argv = ["touch", "{target}/a"] }').replace('[{ layer = "directory" }]', stack)
    lab.execute(study)
    assert [record.status for record in lab.records()] == ["done"], [record.reason for record in lab.records()]
    assert lab.leftovers() == []
    assert list(real.iterdir()) == []


@needs_root
def test_a_scratch_folder_behind_a_link_is_torn_down_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "real one").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "real one")
    lab = Laboratory(tmp_path)
    study = directory('command = { argv = ["touch", "{target}/a"] }').replace('[{ layer = "directory" }]', LOOP)
    lab.execute(study)
    assert [record.status for record in lab.records()] == ["done"], [record.reason for record in lab.records()]
    assert lab.leftovers() == []
    assert list((tmp_path / "real one").iterdir()) == []


FOREIGN = [
    ("directory.remove", {"path": "{tmp}/precious"}),
    ("directory.remove", {"path": "{tmp}/storlab-precious"}),
    ("directory.remove", {"path": f"{{tmp}}/.storlab-{RUN}-host-0/../precious"}),
    ("directory.remove", {"path": f"{{tmp}}/storlab-{RUN}/precious"}),
    ("scratch.remove", {"path": "{tmp}/storlab-precious"}),
    ("scratch.remove", {"path": "{tmp}/storlab-"}),
    ("scratch.remove", {"path": "precious"}),
    ("file.remove", {"path": "{tmp}/precious/file"}),
    ("file.remove", {"path": f"{{tmp}}/storlab-{RUN}"}),
    ("mount.unmount", {"path": "/"}),
    ("mount.unmount", {"path": "{tmp}/precious"}),
    ("loop.detach", {"file": "{tmp}/precious/file"}),
]


@pytest.mark.parametrize(("name", "arguments"), FOREIGN)
def test_no_undoing_touches_a_path_that_is_not_storlabs(tmp_path: Path, name: str, arguments: dict[str, str]) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    filled = {key: value.replace("{tmp}", str(tmp_path)) for key, value in arguments.items()}

    async def undo() -> None:
        async with local_node("host") as node:
            await undo_table()[name].function(node, filled)

    with pytest.raises(StorlabError, match="left alone"):
        asyncio.run(undo())
    assert contents(tmp_path) == {"precious/file": "mine"}


def test_every_run_has_a_name_that_its_undoing_knows() -> None:
    run = new_run_id()
    refuse_foreign(f"/var/tmp/storlab-{run}", itself=True)
    refuse_foreign(f"/data/.storlab-{run}-host-0", itself=True)
    refuse_foreign(f"/var/tmp/storlab-{run}/host-0123456789ab/0-file.img")


@needs_root
def test_the_removal_of_a_scratch_folder_stops_at_file_systems_mounted_in_it(lab: Laboratory) -> None:
    inside = lab.scratch / f"storlab-{RUN}" / "mnt"
    inside.mkdir(parents=True)
    sh("mount", "-t", "tmpfs", "none", str(inside))
    try:
        (inside / "file").write_text("mine")

        async def undo() -> None:
            async with local_node("host") as node:
                await undo_table()["scratch.remove"].function(node, {"path": str(inside.parent)})

        with pytest.raises(StorlabError):
            asyncio.run(undo())
        assert (inside / "file").read_text() == "mine"
    finally:
        sh("umount", str(inside))
