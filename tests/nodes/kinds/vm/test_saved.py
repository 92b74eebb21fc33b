"""Which saved guests are kept, and which fit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from storlab.images.image import Image
from storlab.nodes.demands import Devices
from storlab.nodes.kinds.vm.saved import _fingerprint, _forget_oldest, _forget_unfinished
from storlab.nodes.network import Card

from .specs import guest, image


def saved(folder: Path, name: str, age: float) -> Path:
    path = folder / name
    path.mkdir()
    (path / "state").touch()
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_those_used_last_are_kept_as_far_as_there_is_space_and_eight_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [saved(tmp_path, str(age), age) for age in range(12)]
    for path in every:
        (path / "memory").write_bytes(bytes(64 * 1024))
        os.truncate(path / "memory", 1024**3)  # the rest is a hole
        os.utime(path, (time.time() - int(path.name),) * 2)
    (tmp_path / "3.lock").touch()
    _forget_oldest(tmp_path)
    assert all(path.exists() for path in every)
    monkeypatch.setattr("storlab.nodes.kinds.vm.saved._MOST", 10 * 64 * 1024 + 8192)
    _forget_oldest(tmp_path)
    assert [path.exists() for path in every] == [True] * 10 + [False] * 2
    monkeypatch.setattr("storlab.nodes.kinds.vm.saved._MOST", 1024)
    _forget_oldest(tmp_path)
    assert [path.exists() for path in every] == [True] * 8 + [False] * 4


def test_what_a_maker_that_died_left_goes_and_what_is_being_made_stays(tmp_path: Path) -> None:
    left, new = saved(tmp_path, "a.new", 3600), saved(tmp_path, "b.new", 5)
    _forget_unfinished(tmp_path)
    _forget_oldest(tmp_path)
    assert not left.exists()
    assert new.exists()


def real_image(folder: Path) -> Image:
    from dataclasses import replace

    files = [folder / name for name in ("kernel", "layer")]
    for file in files:
        file.touch()
    return replace(image(), kernel=files[0], layers=(files[1],))


def test_a_saved_guest_fits_others_of_its_hardware_and_image_alone(tmp_path: Path) -> None:
    spec = guest(image=real_image(tmp_path))
    first = _fingerprint(spec)
    devices, card = Devices(devices=({"driver": "nvme"},)), Card(2, "tap2")
    assert first == _fingerprint(guest(image=spec.image, devices=devices, card=card))
    assert first != _fingerprint(guest(image=spec.image, memory="1G"))
    assert first != _fingerprint(guest(image=spec.image, kernel_args="a"))
    os.utime(spec.image.kernel, (1, 1))
    assert first != _fingerprint(spec), "the kernel was built again"
