"""What the levels of a factor change: only what differs, in the words of the study."""

from __future__ import annotations

from pathlib import Path

from storlab.study.differences import differences
from storlab.study.study import load_study

HEAD = 'title = "A"\n[workload.w]\nfio = { rw = "write", bs = "4k", size = "1M" }\n'
MOUNTED = '[{ layer = "file", size = "512M" }, { layer = "loop" }, "{fs}", { layer = "mount", options = "{how}" }]'


def found(folder: Path, text: str) -> dict[str, dict[str, dict[str, str]]]:
    path = folder / "study.toml"
    path.write_text(text)
    levels: dict[str, dict[str, dict[str, str]]] = {}
    for each in differences(load_study(path).cells):
        levels.setdefault(each.factor, {})[each.level] = dict(each.settings)
    return levels


def test_of_keys_of_layers_and_options_of_mounts_only_what_differs_is_named(tmp_path: Path) -> None:
    text = f"stack = {MOUNTED}\n{HEAD}"
    text += '[factors.fs]\next4 = { layer = "mkfs", type = "ext4" }\n'
    text += 'xfs-16k = { layer = "mkfs", type = "xfs", block_size = "16k" }\n'
    text += '[factors]\nhow = ["noatime,nodiratime", "noatime,sync"]\n'
    assert found(tmp_path, text) == {
        "fs": {"ext4": {"mkfs.type": "ext4"}, "xfs-16k": {"mkfs.type": "xfs", "mkfs.block_size": "16k"}},
        "how": {
            "noatime,nodiratime": {"mount.options": "nodiratime"},
            "noatime,sync": {"mount.options": "sync"},
        },
    }


def test_a_level_with_other_layers_has_its_stack_and_what_the_study_sets_of_them(tmp_path: Path) -> None:
    text = 'stack = ["{below}", { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]\n' + HEAD
    text += '[factors.below]\nfile = { layer = "file", size = "1G" }\n'
    text += 'device = { layer = "device", path = "/dev/vdz" }\n'
    text = text.replace('{ layer = "loop" }, ', "").replace(
        '{ layer = "file", size = "1G" }', '[{ layer = "file", size = "1G" }, { layer = "loop" }]'
    )
    levels = found(tmp_path, text)["below"]
    assert levels["file"] == {"stack": "file → loop → mkfs → mount", "file.size": "1G"}
    assert levels["device"] == {"stack": "device → mkfs → mount", "device.path": "/dev/vdz"}


def test_an_option_that_a_level_leaves_out_is_at_its_default_there(tmp_path: Path) -> None:
    text = 'stack = [{ layer = "file", size = "512M" }, { layer = "loop" }, "{fs}", { layer = "mount" }]\n' + HEAD
    text += '[factors.fs]\nplain = { layer = "mkfs", type = "ext4" }\n'
    text += 'large = { layer = "mkfs", type = "ext4", cluster_size = "64k" }\n'
    assert found(tmp_path, text)["fs"] == {
        "plain": {"mkfs.cluster_size": "default"},
        "large": {"mkfs.cluster_size": "64k"},
    }


def test_a_factor_that_is_used_nowhere_changes_nothing_and_one_with_one_level_is_left_out(tmp_path: Path) -> None:
    text = f'stack = [{{ layer = "directory" }}]\n{HEAD}[factors]\nspare = ["a", "b"]\nbs = ["4k"]\n'
    assert found(tmp_path, text) == {"spare": {"a": {}, "b": {}}}
