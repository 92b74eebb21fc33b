"""QEMU's command line: what the study says, and nothing that a machine adds by itself."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from storlab.errors import Unsupported
from storlab.nodes.demands import Devices
from storlab.nodes.kinds.vm.command import Memory, command
from storlab.nodes.network import Card, enter

from .specs import FILES, guest, image, option

DISK = Devices(
    objects=({"qom-type": "iothread", "id": "thread0"},),
    blockdevs=({"driver": "null-co", "node-name": "disk0", "size": 1024**2, "read-zeroes": True},),
    devices=({"driver": "virtio-blk-pci", "drive": "disk0", "id": "disk0-dev", "iothread": "thread0"},),
)


def test_memory_cpus_model_and_arguments_are_the_studys() -> None:
    asked = {"memory": "256M", "cpus": 3, "cpu": "Nehalem", "kernel_args": "a=b c", "qemu_args": ("-s", "-rtc", "x")}
    argv = command(guest(**asked), FILES)
    assert option(argv, "-m") == ["256M"]
    assert f"size={256 * 1024**2}" in option(argv, "-object")[0]
    assert option(argv, "-smp") == ["3"]
    assert option(argv, "-cpu") == ["Nehalem"]
    assert option(argv, "-append")[0].endswith(" a=b c")
    assert argv[-3:] == ["-s", "-rtc", "x"], "last, so that they can change what comes before"


@pytest.mark.parametrize(("accelerator", "cpu", "reliable"), [("kvm", "host", True), ("tcg", "max", False)])
def test_what_runs_it_decides_the_cpu_and_whether_its_counter_can_be_trusted(
    accelerator: str, cpu: str, reliable: bool
) -> None:
    argv = command(guest(accelerator=accelerator), FILES)
    assert option(argv, "-accel")[0].partition(",")[0] == accelerator
    assert option(argv, "-cpu") == [cpu]
    assert ("tsc=reliable" in option(argv, "-append")[0]) == reliable


def test_nothing_comes_from_configuration_or_by_default_and_a_crash_is_an_exit() -> None:
    argv = command(guest(), FILES)
    assert {"-no-user-config", "-nodefaults", "-no-reboot"} <= set(argv)
    assert "panic=-1" in option(argv, "-append")[0].split()
    assert not option(argv, "-netdev")
    assert not any("net" in device for device in option(argv, "-device"))


def test_a_network_card_is_there_where_the_guest_serves_others_alone() -> None:
    argv = command(guest(card=Card(300, "tap300"), within=tuple(enter("storlab-20260101-000000-abcd"))), FILES)
    assert argv[:4] == ["nsenter", "--net=/run/netns/storlab-20260101-000000-abcd", "--", "qemu-system-x86_64"]
    assert [orjson.loads(each)["ifname"] for each in option(argv, "-netdev")] == ["tap300"]
    assert any("52:54:00:5b:01:2c" in device for device in option(argv, "-device"))


def test_binding_goes_before_qemu() -> None:
    argv = command(guest(pin="0-1", numa="0"), FILES)
    program = argv.index("qemu-system-x86_64")
    assert argv[:program] == ["numactl", "--cpunodebind=0", "--membind=0", "--physcpubind=0-1", "--"]


def test_layers_of_the_root_are_read_only_and_known_by_their_serial_numbers() -> None:
    argv = command(guest(image=image(3)), FILES)
    nodes = [orjson.loads(each) for each in option(argv, "-blockdev")]
    assert [node["read-only"] for node in nodes] == [True] * 3
    assert [node["file"]["filename"] for node in nodes] == [f"/image/{number}.erofs" for number in range(3)]
    serials = [orjson.loads(each)["serial"] for each in option(argv, "-device") if '"serial"' in each]
    assert serials == ["storlab-layer-0", "storlab-layer-1", "storlab-layer-2"]
    assert "storlab.layers=3" in option(argv, "-append")[0].split()


def test_a_cold_guest_has_its_disk_on_the_command_line_on_a_port_of_its_own() -> None:
    argv = command(guest(devices=DISK), FILES)
    (disk,) = (orjson.loads(each) for each in option(argv, "-device") if "disk0-dev" in each)
    assert disk["bus"] == "port0"
    assert [each for each in option(argv, "-device") if each.startswith("pcie-root-port,id=port0,")]
    assert "disk0" in [orjson.loads(each)["node-name"] for each in option(argv, "-blockdev")]
    assert "-incoming" not in argv


def test_a_copy_of_a_saved_guest_has_free_ports_and_gets_its_disk_later() -> None:
    saved = Memory(Path("/cache/memory"), shared=False)
    argv = command(guest(devices=DISK), FILES, memory=saved, incoming=True)
    assert not any("disk0" in word for word in argv)
    ports = [each for each in option(argv, "-device") if each.startswith("pcie-root-port")]
    assert len(ports) == 8
    assert option(argv, "-incoming") == ["defer"]
    assert "share=off" in option(argv, "-object")[0]


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


def test_more_devices_than_a_machine_takes_are_refused_with_their_number() -> None:
    with pytest.raises(Unsupported, match=r"^node vm: a virtual machine takes 120 devices at most, and not 121$"):
        guest(devices=disks(121)).with_ports()


def test_a_guest_to_be_saved_and_its_copies_differ_in_nothing_that_the_guest_can_see() -> None:
    saved = command(guest(), FILES, memory=Memory(Path("/cache/memory"), shared=True))
    copy = command(guest(devices=DISK), FILES, memory=Memory(Path("/cache/memory"), shared=False), incoming=True)
    assert [word.replace("share=on", "share=off") for word in saved] == copy[:-2]


def test_commas_in_paths_are_doubled() -> None:
    files = replace(FILES, console=Path("/a,b/console.log"))
    argv = command(guest(), files, memory=Memory(Path("/c,d/memory"), shared=True))
    assert "file,id=console,path=/a,,b/console.log" in option(argv, "-chardev")
    assert "mem-path=/c,,d/memory," in option(argv, "-object")[0]


@pytest.mark.parametrize("machine", ["q35", "pc"])
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
def test_qemu_takes_it(machine: str, tmp_path: Path) -> None:
    """Up to the kernel, which is not there."""
    files = replace(FILES, qmp=tmp_path / "qmp", agent=tmp_path / "agent", console=tmp_path / "console")
    argv = command(guest(machine=machine, devices=DISK, memory="128M", image=image(0)), files)
    ended = subprocess.run([*argv, "-S"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "/image/kernel" in ended.stderr, ended.stderr
