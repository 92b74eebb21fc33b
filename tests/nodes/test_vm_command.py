"""A guest's machine as a study writes it, QEMU's command line for it, and which saved guests fit."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from laboratory.samples import sample
from storlab.base.errors import Unsupported, UserError
from storlab.images.image import Image
from storlab.nodes.demands import NO_DEVICES, Devices
from storlab.nodes.kinds.vm.command import Files, GuestSpec, Memory, command
from storlab.nodes.kinds.vm.emulator import find_emulator
from storlab.nodes.kinds.vm.guest import ENTROPY, MAGIC, _fingerprint, _forget_oldest, _forget_unfinished, preamble
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.network import Card, enter

FILES = Files(Path("/run/vm.qmp"), Path("/run/vm.agent"), Path("/out/console.log"))


def image(layers: int = 2) -> Image:
    kernel, initramfs, *parts = (Path("/image", name) for name in ("kernel", "initramfs", *map(str, range(layers))))
    of = tuple(part.with_suffix(".erofs") for part in parts)
    return Image("none", kernel, initramfs, of, "6.12", frozenset(), frozenset(), frozenset(), {})


def cases(name: str) -> Any:
    return json.loads(sample(__file__, f"cases/{name}"))


def guest(**given: Any) -> GuestSpec:
    hardware = {key: given.pop(key) for key in list(given) if key in Hardware.model_fields}
    fields: dict[str, Any] = {"name": "vm", "image": image(), "initrd": Path("/cache/initrd"), "accelerator": "tcg"}
    return GuestSpec(hardware=Hardware.model_validate(hardware), **{**fields, **given})


def option(argv: list[str], name: str) -> list[str]:
    return [value for word, value in pairwise(argv) if word == name]


VERSION = "QEMU emulator version "
DISK = Devices(
    objects=({"qom-type": "iothread", "id": "thread0"},),
    blockdevs=({"driver": "null-co", "node-name": "disk0", "size": 1024**2, "read-zeroes": True},),
    devices=({"driver": "virtio-blk-pci", "drive": "disk0", "id": "disk0-dev", "iothread": "thread0"},),
)


def test_memory_cpus_model_and_arguments_are_the_studys_and_binding_goes_before_qemu() -> None:
    asked = {"memory": "256M", "cpus": 3, "cpu": "Nehalem", "kernel_args": "a=b c", "qemu_args": ("-s", "-rtc", "x")}
    argv = command(guest(**asked), FILES)
    assert option(argv, "-m") == ["256M"] and f"size={256 * 1024**2}" in option(argv, "-object")[0]
    assert (option(argv, "-smp"), option(argv, "-cpu")) == (["3"], ["Nehalem"])
    assert option(argv, "-append")[0].endswith(" a=b c")
    assert argv[-3:] == ["-s", "-rtc", "x"], "last, so that they can change what comes before"
    argv = command(guest(pin="0-1", numa="0"), FILES)
    program = argv.index("qemu-system-x86_64")
    assert argv[:program] == ["numactl", "--cpunodebind=0", "--membind=0", "--physcpubind=0-1", "--"]
    assert command(guest(pin="0-1", numa="0", qemu="/opt/qemu"), FILES)[:program] == argv[:program]
    assert command(guest(pin="0-1", numa="0", qemu="/opt/qemu"), FILES)[program] == "/opt/qemu"
    argv = command(guest(card=Card(300, "tap300"), within=tuple(enter("storlab-20260101-000000-abcd"))), FILES)
    assert argv[:4] == ["nsenter", "--net=/run/netns/storlab-20260101-000000-abcd", "--", "qemu-system-x86_64"]
    assert [orjson.loads(each)["ifname"] for each in option(argv, "-netdev")] == ["tap300"]
    assert any("52:54:00:5b:01:2c" in device for device in option(argv, "-device"))


def test_what_runs_it_decides_the_cpu_and_nothing_comes_by_default() -> None:
    for accelerator, cpu, reliable in (("kvm", "host", True), ("tcg", "max,erms=off,fsrm=off", False)):
        argv = command(guest(accelerator=accelerator), FILES)
        assert (option(argv, "-accel")[0].partition(",")[0], option(argv, "-cpu")) == (accelerator, [cpu])
        assert ("tsc=reliable" in option(argv, "-append")[0]) == reliable
    argv = command(guest(), FILES)
    assert {"-no-user-config", "-nodefaults", "-no-reboot"} <= set(argv)
    assert "panic=-1" in option(argv, "-append")[0].split() and not option(argv, "-netdev")
    assert not any("net" in device for device in option(argv, "-device"))
    argv = command(guest(image=image(3)), FILES)
    nodes = [orjson.loads(each) for each in option(argv, "-blockdev")]
    assert [node["read-only"] for node in nodes] == [True] * 3
    assert [node["file"]["filename"] for node in nodes] == [f"/image/{number}.erofs" for number in range(3)]
    serials = [orjson.loads(each)["serial"] for each in option(argv, "-device") if '"serial"' in each]
    assert serials == ["storlab-layer-0", "storlab-layer-1", "storlab-layer-2"]
    assert "storlab.layers=3" in option(argv, "-append")[0].split()
    argv = command(guest(image=image(3), devices=DISK, root="storlab-disk0"), FILES)
    assert [orjson.loads(each)["node-name"] for each in option(argv, "-blockdev")] == ["disk0"], "and no layer"
    assert "storlab.root=storlab-disk0" in option(argv, "-append")[0].split()


def test_a_cold_guest_has_its_disk_on_a_port_and_a_copy_of_a_saved_one_gets_it_later() -> None:
    argv = command(guest(devices=DISK), FILES)
    (disk,) = (orjson.loads(each) for each in option(argv, "-device") if "disk0-dev" in each)
    assert disk["bus"] == "port0"
    assert [each for each in option(argv, "-device") if each.startswith("pcie-root-port,id=port0,")]
    assert "disk0" in [orjson.loads(each)["node-name"] for each in option(argv, "-blockdev")]
    assert "-incoming" not in argv
    saved = Memory(Path("/cache/memory"), shared=False)
    argv = command(guest(devices=DISK), FILES, memory=saved, incoming=True)
    assert not any("disk0" in word for word in argv)
    ports = [each for each in option(argv, "-device") if each.startswith("pcie-root-port")]
    assert (len(ports), option(argv, "-incoming")) == (8, ["defer"]) and "share=off" in option(argv, "-object")[0]


def disks(count: int) -> Devices:
    return Devices(devices=tuple({"driver": "nvme", "id": f"disk{number}"} for number in range(count)))


@pytest.mark.parametrize(("count", "ports"), [(0, 8), (8, 8), (9, 16), (120, 120)])
def test_a_guest_has_as_many_ports_as_its_devices_need_eight_at_a_time(count: int, ports: int) -> None:
    spec = guest(devices=disks(count)).with_ports()
    argv = command(spec, FILES, memory=Memory(Path("/m"), shared=True))
    names = [each.split(",")[1].removeprefix("id=") for each in option(argv, "-device") if "pcie-root-port" in each]
    assert names == [f"port{number}" for number in range(ports)]
    addresses = [each.split("addr=")[1].split(",")[0] for each in option(argv, "-device") if "pcie-root-port" in each]
    assert len(set(addresses)) == ports
    assert {device["bus"] for device in spec.all_devices.on_ports(spec.port_names()).devices} == set(names[:count])


def test_a_guest_to_be_saved_and_its_copies_differ_in_nothing_that_the_guest_can_see() -> None:
    saved = command(guest(), FILES, memory=Memory(Path("/cache/memory"), shared=True))
    copy = command(guest(devices=DISK), FILES, memory=Memory(Path("/cache/memory"), shared=False), incoming=True)
    assert [word.replace("share=on", "share=off") for word in saved] == copy[:-2]
    files = replace(FILES, console=Path("/a,b/console.log"))
    argv = command(guest(), files, memory=Memory(Path("/c,d/memory"), shared=True))
    assert "file,id=console,path=/a,,b/console.log" in option(argv, "-chardev")
    assert "mem-path=/c,,d/memory," in option(argv, "-object")[0]


@pytest.mark.parametrize(("machine", "version"), [("q35", "10.0.2"), ("q35", "5.2.50"), ("pc", "7.2.0")])
@pytest.mark.needs("qemu-system-x86_64")
def test_qemu_takes_it(machine: str, version: str, tmp_path: Path) -> None:
    """Up to the kernel, which is not there."""
    files = replace(FILES, qmp=tmp_path / "qmp", agent=tmp_path / "agent", console=tmp_path / "console")
    spec = replace(guest(machine=machine, devices=DISK, memory="128M", image=image(0)), qemu=VERSION + version)
    argv = command(spec, files)
    assert option(argv, "-device")[-1].startswith("virtio-blk-pci,drive=disk0," if "5.2" in version else "{")
    ended = subprocess.run([*argv, "-S"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "/image/kernel" in ended.stderr, ended.stderr


CARD = Card(3, "tap3")
BUS = {"driver": "virtio-scsi-pci", "id": "bus0"}
SCSI = Devices(devices=(BUS, {"driver": "scsi-hd", "drive": "disk0", "bus": "bus0.0"}))
NVME = Devices(devices=({"driver": "nvme", "drive": "disk0", "serial": "s"},))
ALL = Devices(objects=({"id": "o"},), blockdevs=({"node-name": "b"},)) + SCSI + CARD.devices()


def test_what_sits_in_a_slot_gets_a_port_and_too_few_or_too_many_are_a_mistake() -> None:
    assert (SCSI.pci, NVME.pci, CARD.devices().pci, ALL.pci, NO_DEVICES.pci) == (1, 1, 1, 2, 0)
    assert [device.get("bus") for device in ALL.on_ports(["port0", "port1"]).devices] == ["port0", "bus0.0", "port1"]
    with pytest.raises((StopIteration, RuntimeError)):
        ALL.on_ports(["port0"])
    with pytest.raises(Unsupported, match=r"^node vm: a virtual machine takes 120 devices at most, and not 121$"):
        guest(devices=disks(121)).with_ports()


def test_objects_come_first_then_what_is_behind_and_a_card_is_connected_to_its_tap_without_a_script() -> None:
    assert [name for name, _ in ALL.commands()] == ["object-add", "blockdev-add", *["device_add"] * 3]
    words = ALL.command_line()
    assert words[::2] == ["-netdev", "-object", "-blockdev", *["-device"] * 3]
    assert [orjson.loads(word) for word in words[3::2]] == [arguments for _, arguments in ALL.commands()]
    assert ALL.early_arguments() == words[:2]
    netdev = orjson.loads(CARD.devices().early_arguments()[1])
    ((_, device),) = CARD.devices().commands()
    assert (netdev["type"], netdev["ifname"], netdev["script"], netdev["downscript"]) == ("tap", "tap3", "no", "no")
    assert (device["netdev"], device["mac"]) == (netdev["id"], CARD.mac)


@pytest.mark.parametrize(("keys", "says"), cases("refused-hardware.json"), ids=str)
def test_what_can_not_be(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Hardware.model_validate(keys)


@pytest.mark.parametrize(("script", "says"), cases("refused-qemus.json"), ids=str)
def test_what_is_no_qemu_or_too_old_is_refused(tmp_path: Path, script: str, says: str) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script else 0o644)
    with pytest.raises(UserError, match=says) as refused:
        asyncio.run(find_emulator(str(program), (), None))  # type: ignore[arg-type]
    assert refused.value.key == ("qemu",)


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
    monkeypatch.setattr("storlab.nodes.kinds.vm.guest._MOST", 10 * 64 * 1024 + 8192)
    _forget_oldest(tmp_path)
    assert [path.exists() for path in every] == [True] * 10 + [False] * 2
    monkeypatch.setattr("storlab.nodes.kinds.vm.guest._MOST", 1024)
    _forget_oldest(tmp_path)
    assert [path.exists() for path in every] == [True] * 8 + [False] * 4


def test_what_a_maker_that_died_left_goes_and_what_is_being_made_stays(tmp_path: Path) -> None:
    left, new = saved(tmp_path, "a.new", 3600), saved(tmp_path, "b.new", 5)
    _forget_unfinished(tmp_path)
    _forget_oldest(tmp_path)
    assert not left.exists() and new.exists()


def real_image(folder: Path) -> Image:
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
    own = guest(image=spec.image, qemu=str(spec.image.layers[0]))
    of_own = _fingerprint(own)
    os.utime(own.hardware.qemu, (2, 2))
    assert len({first, of_own, _fingerprint(own)}) == 3, "so was the QEMU"
    os.utime(spec.image.kernel, (1, 1))
    assert first != _fingerprint(spec), "the kernel was built again"


def test_it_has_the_time_and_entropy_that_no_other_guest_gets() -> None:
    before = time.time_ns()
    first, second = preamble(), preamble()
    assert len(first) == len(second) == len(MAGIC) + 8 + ENTROPY and first.startswith(MAGIC)
    (told,) = struct.unpack_from(">Q", first, len(MAGIC))
    assert before <= told <= time.time_ns() and first[-ENTROPY:] != second[-ENTROPY:]


def test_sockets_and_nodes_of_a_guest_divide_its_cpus_and_memory_among_them() -> None:
    argv = command(guest(cpus=4, sockets=2), FILES)
    assert option(argv, "-smp") == ["4,sockets=2,cores=2"] and not option(argv, "-numa")
    argv = command(guest(cpus=5, numa_nodes=2, memory="258M"), FILES)
    memory = [each for each in option(argv, "-object") if each.startswith("memory-backend")]
    assert memory == [f"memory-backend-memfd,id=memory{node},share=on,size=129M" for node in (0, 1)]
    assert option(argv, "-numa") == ["node,nodeid=0,cpus=0-1,memdev=memory0", "node,nodeid=1,cpus=2-4,memdev=memory1"]
    assert option(argv, "-m") == ["258M"] and "memory-backend" not in option(argv, "-machine")[0]
