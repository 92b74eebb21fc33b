"""A guest's machine, as a study writes it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from storlab.nodes.kinds.vm.hardware import Hardware


def test_by_default_it_is_small_and_restored() -> None:
    hardware = Hardware()
    assert (hardware.memory, hardware.cpus, hardware.machine) == (512 * 1024**2, 1, "q35")
    assert (hardware.start, hardware.accel, hardware.silence) == ("restored", "auto", 60)


@pytest.mark.parametrize(
    ("keys", "key", "value"),
    [
        ({"memory": "128M"}, "memory", 128 * 1024**2),
        ({"pin": 1}, "pin", "1"),
        ({"pin": "0-1,4"}, "pin", "0-1,4"),
        ({"silence": "2s"}, "silence", 2),
        ({"qemu_args": ["-s"]}, "qemu_args", ("-s",)),
    ],
)
def test_what_can_be_asked(keys: dict[str, Any], key: str, value: object) -> None:
    assert getattr(Hardware.model_validate(keys), key) == value


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"memory": "64M"}, "a guest needs 128M at least to boot"),
        ({"memory": "129M"}, "a guest's memory is a multiple of 2M"),
        ({"cpus": 0}, "greater than or equal to 1"),
        ({"cpus": True}, "valid integer"),
        ({"machine": "microvm"}, "'q35' or 'pc'"),
        ({"pin": "every"}, "'every' is no list of CPUs or nodes"),
        ({"pin": True}, "True is no list of CPUs or nodes"),
        ({"numa": "0-"}, "'0-' is no list of CPUs or nodes"),
        ({"silence": "1s"}, "write 2s or more"),
        ({"modules": "/lib/modules/6.12"}, "modules goes with a kernel of your own"),
        ({"rootfs": "/root"}, "rootfs goes with a kernel of your own"),
        ({"memroy": "1G"}, "Extra inputs"),
    ],
)
def test_what_can_not_be(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Hardware.model_validate(keys)
