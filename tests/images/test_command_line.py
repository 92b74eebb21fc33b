"""`storlab image` as users meet it: what it prints, and its exit status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from storlab.doctor import virtual
from storlab.images.cache import cache_folder
from storlab.images.image import Image
from storlab.images.manifest import Listed
from study.program import program


def storlab(*arguments: str, cache: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {}), **more}
    return program("image", *arguments, environment=environment)


def test_an_empty_cache_is_said_with_the_command(tmp_path: Path) -> None:
    ended = storlab("list", cache=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "There is no guest image; `storlab image build` makes one.\n")
    assert json.loads(storlab("list", "--json", cache=tmp_path).stdout) == []


NAME_ONE = "storlab: name one image to remove, or say --all; `storlab image list` shows them\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["build", "--with", "nfs"], "storlab: there is no extra 'nfs' for guest images; there is: zfs\n"),
        (["remove", "debian"], "storlab: there is no image 'debian'; there is none at all\n"),
        (["remove"], NAME_ONE),
        (
            ["remove", "x", "--all"],
            "storlab: name one image to remove, or say --all; `storlab image list` shows them\n",
        ),
    ],
)
def test_a_mistake_is_status_2_and_one_sentence(arguments: list[str], says: str, tmp_path: Path) -> None:
    ended = storlab(*arguments, cache=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, says)


@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed")
def test_a_mirror_that_cannot_be_reached_is_named_as_the_cause_with_the_log(tmp_path: Path) -> None:
    ended = storlab("build", "--mirror", "http://127.0.0.1:9/debian", cache=tmp_path)
    assert ended.returncode == 1
    assert "the Debian mirror can't be reached; check the network, or name another with --mirror" in ended.stderr
    assert f"All output: {tmp_path}/storlab/images/logs/apt.log" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_building_only_if_missing_asks_no_mirror(image: Image) -> None:
    ended = storlab("build", "--with", "zfs", "--if-missing", "--mirror", "http://127.0.0.1:9/debian")
    assert (ended.returncode, ended.stdout) == (0, f"{image.name} is there\n")


def test_the_list_has_every_image_with_its_parts(image: Image) -> None:
    listed = json.loads(storlab("list", "--json").stdout)
    found = next(entry for entry in listed if entry["name"] == image.name)
    assert set(found["sizes"]) == {"root", "kernel", "zfs"}
    assert found["sizes"]["root"] > 100e6 and found["current"]
    plain = storlab("list").stdout
    assert all(word in plain for word in (image.name, image.versions["kernel"], "zfs")), plain


def test_doctor_tells_what_is_there() -> None:
    image = Listed(
        "debian-6.12.1", "6.12.1", (), 0.0, True, {"root": 400 << 20, "kernel": 100 << 20}, {"kernel": "6.12.1-1"}
    )
    check = virtual.guest_image([image])
    assert (check.status, check.says) == ("ok", "debian-6.12.1 (kernel 6.12.1-1), 500 MiB")
    none = virtual.guest_image([])
    assert (none.status, none.says, none.remedy) == ("missing", "none is built", "storlab image build")
    old = virtual.guest_image([Listed("debian-6.12.0", "6.12.0", (), 0.0, False, {}, {})])
    assert old.status == "warn" and "of another version of Storlab" in old.says


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/storlab/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/storlab/images")
