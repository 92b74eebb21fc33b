"""Disks and folders that guests are given: what QEMU and virtiofsd are asked for is what they take and guests find."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from laboratory import wait_until
from laboratory.samples import sample
from storlab.base.errors import Unsupported, UserError
from storlab.layers.attach.attachment import AttachmentLayer, serial_of, serial_text
from storlab.layers.attach.ninep import NinePLayer
from storlab.layers.attach.virtiofs import VirtiofsdLayer, VirtiofsLayer
from storlab.layers.database.innodb import require_atomic
from storlab.layers.resources import Dir, Disk, File, LoggedFile, Share
from storlab.layers.server.base import ServerContext
from storlab.layers.stack import type_errors
from storlab.nodes.demands import Devices
from storlab.nodes.needs import numactl
from storlab.nodes.node import Confinement
from storlab.study.study import parse_study

from .sites import Ground, guest, parse
from .test_nbd_export import MODES

_PORT = "slot0"


@dataclass
class Qemu:
    """The monitor of one."""

    stream: Any

    def ask(self, command: str, **arguments: Any) -> Any:
        """What a command returns. Raises ``AssertionError`` with QEMU's own words."""
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            assert "error" not in answer, f"{command} {arguments}: {answer['error']['desc']}"
            if "return" in answer:
                return answer["return"]

    def attach(self, devices: Devices) -> None:
        """As a launcher does."""
        for command, arguments in devices.on_ports([_PORT]).commands():
            self.ask(command, **arguments)


@contextmanager
def standing_qemu(folder: Path, *arguments: str) -> Iterator[Qemu]:
    """With one free slot."""
    path = folder / "qmp"
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-nodefaults", "-S", "-display", "none"]
    argv += ["-m", "64", "-qmp", f"unix:{path},server=on,wait=off", "-device", f"pcie-root-port,id={_PORT}"]
    with subprocess.Popen([*argv, *arguments], stderr=subprocess.PIPE) as process:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                wait_until(lambda: process.poll() is not None or not connection.connect_ex(str(path)), 20.0)
                assert process.stderr is not None
                assert process.poll() is None, process.stderr.read().decode()
                with connection.makefile("rwb") as stream:
                    qemu = Qemu(stream)
                    stream.readline()  # the greeting
                    qemu.ask("qmp_capabilities")
                    yield qemu
        finally:
            process.kill()
            path.unlink(missing_ok=True)


SLOT = "disk0"
KINDS = ["virtio-blk", "virtio-scsi", "nvme"]
FILE = {"layer": "file", "size": "16M"}
BELOW: dict[str, list[dict[str, Any]]] = {
    "raw file": [FILE],
    "qcow2": [{"layer": "qcow2", "size": "16M"}],
    "qcow2 clone": [{"layer": "image-clone", "base": {"size": "16M", "written": "1M"}}],
    "export": [FILE, {"layer": "nbd-export", "shared": 8}],
    "disk": [FILE, {"layer": "loop"}],
}


def attach_layer(kind: str, **fields: Any) -> AttachmentLayer:
    (layer,) = parse([{"layer": kind, **fields}])
    assert isinstance(layer, AttachmentLayer)
    return layer


async def made(ground: Ground, stack: list[dict[str, Any]], owner: str = "") -> Any:
    """What is to be attached."""
    resource = (await ground.set_up(*stack, owner=owner)).resource
    assert resource is not None
    return resource


def taken(folder: Path, layer: AttachmentLayer, below: Any) -> dict[str, Any]:
    """Attach it to a real QEMU, plugged in and from the command line; its block node as QEMU knows it."""
    devices = layer.demands(below, SLOT).devices
    with standing_qemu(folder, *devices.on_ports([_PORT]).command_line()):
        pass
    with standing_qemu(folder) as qemu:
        qemu.attach(devices)
        nodes: list[dict[str, Any]] = qemu.ask("query-named-block-nodes", flat=True)
        inserted = next(device for device in qemu.ask("query-block") if "inserted" in device)
        assert inserted["inserted"]["node-name"] == SLOT
        node = next(node for node in nodes if node["node-name"] == SLOT)
        return {**node, "all": nodes, "writeback": inserted["inserted"]["cache"]["writeback"]}


@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("below", BELOW)
async def test_qemu_takes_every_mode_and_kind_of_aio(ground: Ground, short_path: Path, kind: str, below: str) -> None:
    resource = await made(ground, BELOW[below])
    for cache, aio in MODES:
        node = await asyncio.to_thread(taken, short_path, attach_layer(kind, cache=cache, aio=aio), resource)
        assert node["image"]["virtual-size"] == 16 * 1024**2
        flags = {key: node["cache"][key] for key in ("direct", "no-flush")}
        assert flags == {"direct": cache in ("none", "directsync"), "no-flush": cache == "unsafe"}
        assert node["writeback"] is (cache in ("none", "writeback", "unsafe"))


@pytest.mark.parametrize("kind", KINDS)
async def test_qemu_takes_queues_block_sizes_threads_and_discard(ground: Ground, short_path: Path, kind: str) -> None:
    fields = {"queues": 3, "logical_block_size": "4k", "physical_block_size": "16k"}
    fields |= {"atomic": "16k"} if kind == "nvme" else {"iothread": True}
    resource = await made(ground, [FILE])
    for discard in (True, False):
        node = await asyncio.to_thread(taken, short_path, attach_layer(kind, discard=discard, **fields), resource)
        assert node["detect_zeroes"] == "off"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_base_of_a_clone_has_its_mode_and_is_never_written(
    ground: Ground, short_path: Path, kind: str
) -> None:
    resource = await made(ground, BELOW["qcow2 clone"])
    assert isinstance(resource, File)
    layer = attach_layer(kind, cache="directsync", aio="native")
    node = await asyncio.to_thread(taken, short_path, layer, resource)
    bases = [each for each in node["all"] if resource.backing in each["file"] and each["drv"] in ("raw", "file")]
    assert {each["drv"] for each in bases} == {"raw", "file"}
    assert all(each["ro"] and each["cache"]["direct"] for each in bases)


def test_requests_are_joined_but_not_above_a_log_of_writes_and_errors_stop_the_guest() -> None:
    logged = LoggedFile("host", "/image", 2**20, log="/log", start="/start")
    (device,) = attach_layer("virtio-blk").demands(logged, SLOT).devices.devices
    assert device["request-merging"] is False
    (device,) = attach_layer("virtio-blk").demands(File("host", "/image", 2**20), SLOT).devices.devices
    assert "request-merging" not in device
    below = File("host", "/a", 4096)
    for kind in ("virtio-blk", "virtio-scsi"):
        disk = attach_layer(kind).demands(below, SLOT).devices.devices[-1]
        assert (disk["werror"], disk["rerror"]) == ("stop", "stop")


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_first_device_sits_in_a_slot_and_the_names_come_from_the_disks(kind: str) -> None:
    devices = attach_layer(kind).demands(File("host", "/a", 4096), "disk1").devices
    assert devices.pci == 1
    assert "bus" not in devices.devices[0]
    assert all("bus" in device for device in devices.devices[1:])
    assert devices.devices[-1]["serial"] == serial_of("disk1")
    names = [str(each.get("id", each.get("node-name"))) for each in (*devices.blockdevs, *devices.devices)]
    assert all(name.startswith("disk1") for name in names)
    assert len(set(names)) == len(names)


def test_a_directory_can_not_be_attached_and_serial_numbers_are_read_from_all_three_kinds() -> None:
    ((position, message),) = type_errors(parse([{"layer": "directory"}, {"layer": "virtio-blk"}]), [Disk, Dir])
    message_wanted = "layer virtio-blk takes a File or Disk or Export, but layer directory gives a Dir"
    assert (position, message) == (1, message_wanted)
    assert serial_text(b"storlab-disk0") == "storlab-disk0"
    assert serial_text(b"storlab-disk0       \n") == "storlab-disk0"
    assert serial_text(b"storlab-disk0\0") == "storlab-disk0"


IMAGE = {"layer": "image-clone", "base": {"size": "64M", "written": "4M"}}


@pytest.mark.needs("guests")
@pytest.mark.parametrize(
    ("kind", "stack", "fields"),
    [
        ("virtio-blk", [IMAGE], {"cache": "none", "aio": "native"}),
        ("virtio-blk", [IMAGE, {"layer": "nbd-export"}], {"cache": "writethrough", "logical_block_size": "4k"}),
        ("virtio-scsi", [IMAGE], {"cache": "directsync", "physical_block_size": "16k", "discard": False}),
        ("nvme", [IMAGE], {"cache": "unsafe", "aio": "io_uring", "atomic": "16k"}),
    ],
    ids=["virtio-blk", "virtio-blk over NBD", "virtio-scsi", "nvme"],
)
async def test_a_guest_finds_its_disk_and_says_how_it_syncs(
    ground: Ground, kind: str, stack: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    below, small = await made(ground, stack, "vm-1"), await made(ground, [FILE], "small")
    layer, too_large = attach_layer(kind, **fields), attach_layer("virtio-blk", logical_block_size="16k")
    disks = [layer.demands(below, SLOT).devices, too_large.demands(small, "disk1").devices]
    with_both = (kind, stack) == ("virtio-blk", [IMAGE])
    async with guest(ground.node, "vm-1", disks[: 1 + with_both], memory="192M") as running:
        node, context = running.node, ground.context(node=running.node)
        disk = await layer.set_up(below, context)
        assert isinstance(disk, Disk) and (disk.node, disk.size, disk.ours) == ("vm-1", 64 * 1024**2, True)
        sum_of_head = ("sh", "-c", f"head -c 4M {disk.path} | sha256sum")
        before = await node.output(*sum_of_head)
        await node.run(["dd", "if=/dev/urandom", f"of={disk.path}", "bs=1M", "seek=8", "count=1", "conv=fsync"])
        assert await node.output(*sum_of_head) == before
        facts = await layer.facts(disk, context)
        if "atomic" in fields:  # what doublewrite = "atomic" of databases takes
            await require_atomic(node, [disk.name], 16384)
            with pytest.raises(Unsupported, match=rf"{disk.name} promises that of writes of \d+ to 16384 B"):
                await require_atomic(node, [disk.name], 32768)
        if with_both:
            with pytest.raises(Unsupported, match=r"kernels before 6\.15 take no sectors of 16k"):
                await too_large.set_up(small, replace(context, slot="disk1"))
    inside, larger = facts["guest"], "logical_block_size" in fields
    assert facts["qemu"]["cache"] == fields["cache"]
    assert inside["logical_block_size"] == (4096 if larger else 512)
    assert inside["physical_block_size"] == (16384 if "physical_block_size" in fields else 4096 if larger else 512)
    # NVMe's controller always says that it has one.
    assert (inside["write_cache"] == "write back") is (kind == "nvme" or facts["qemu"]["write_cache"])
    assert inside["atomic_write_unit_max_bytes"] == (16384 if "atomic" in fields else 0)
    assert (inside["discard_granularity"] == 0) is (fields.get("discard") is False)


SERVED = Share("host", "virtiofs", "", 0, "/srv", socket="/run/socket")


def options(confinement: Confinement | None = None, **keys: Any) -> list[str]:
    layer = VirtiofsdLayer.model_validate(keys)
    below = Dir("host", "/srv/x")
    if layer.implementation == "c":
        return layer._options_of_c(below.path)
    return layer._options(ServerContext(None, below, "/run/d", confinement=confinement))  # type: ignore[arg-type]


def test_every_default_is_written_out_for_both_daemons() -> None:
    assert options() == [
        "--shared-dir=/srv/x", "--cache=auto", "--sandbox=namespace", "--inode-file-handles=never",
        "--announce-submounts",
    ]  # fmt: skip
    assert options(implementation="c") == [
        "-f", "-o", "source=/srv/x,cache=auto,sandbox=namespace,no_writeback,no_xattr,no_posix_acl,no_allow_direct_io,"
        "readdirplus,announce_submounts",
    ]  # fmt: skip
    for name in ("none", "never"):
        assert "--cache=never" in options(cache=name) and ",cache=none," in options(cache=name, implementation="c")[-1]
    # What a study adds comes first, so that nothing of Storlab's is undone by it.
    own = ["xattrmap=:map::user.host.:", "modcaps=-setfcap:-chown"]
    assert options(options=[*own, "log-level=warn"])[:3] == [f"--{each}" for each in (*own, "log-level=warn")]
    of_c = [*own, "flock", "no_posix_lock", "timeout=0.5"]
    assert options(implementation="c", options=of_c)[-1].startswith(f"{','.join(of_c)},source=/srv/x,")


def test_a_confined_daemon_locks_itself_in_by_its_root_alone_and_makes_no_devices() -> None:
    words = options(Confinement(), options=["modcaps=-chown", "log-level=warn"])
    assert words[:4] == ["--log-level=warn", "--modcaps=-chown:-mknod", "--shared-dir=/srv/x", "--cache=auto"]
    assert "--sandbox=chroot" in words and "--modcaps=-mknod" in options(Confinement())


def command(**keys: Any) -> Sequence[str]:
    server = ServerContext(None, Dir("host", "/srv"), "/run/d")  # type: ignore[arg-type]
    return VirtiofsdLayer.model_validate({"path": "/bin/d", **keys}).command(server)


def test_the_limit_of_open_files_is_for_both_and_threads_of_the_one_in_c_do_not_ask_for_the_number_of_cpus() -> None:
    """Its filter forbids that."""
    for implementation in ("rust", "c"):
        assert "--rlimit-nofile=5000" in command(implementation=implementation, open_files=5000)
    for implementation, threads in (("c", 64), ("c", "default"), ("c", 0), ("rust", 64)):
        words = command(implementation=implementation, thread_pool=threads)
        assert ("MALLOC_ARENA_MAX=64" in words) == (implementation == "c" and threads != 0), words
        pool = [word for word in words if word.startswith("--thread-pool-size=")]
        assert pool == ([] if threads == "default" else [f"--thread-pool-size={threads}"])


def test_bound_to_all_is_bound_to_nothing() -> None:
    layer = VirtiofsdLayer.model_validate({"pin": "all", "numa": "all"})
    assert (layer.pin, layer.numa, numactl(layer.pin, layer.numa)) == (None, None, [])
    bound = VirtiofsdLayer.model_validate({"pin": "0,2-3", "numa": 0})
    words = ["numactl", "--cpunodebind=0", "--membind=0", "--physcpubind=0,2-3", "--"]
    assert numactl(bound.pin, bound.numa) == words


def test_a_guest_with_virtiofs_shares_its_memory_and_a_daemon_of_ones_own_is_no_package() -> None:
    demands = VirtiofsLayer(queue_size=1024, queues=2).demands(SERVED, "disk0")
    assert demands.shared_memory and not demands.cold
    assert demands.devices.chardevs == (("disk0-socket", "/run/socket"),)
    (device,) = demands.devices.devices
    assert (device["queue-size"], device["num-request-queues"], device["tag"]) == (1024, 2, "disk0")
    assert not NinePLayer().demands(Dir("host", "/srv"), "disk0").shared_memory
    with_window = VirtiofsLayer.model_validate({"dax": "always", "cache_size": "16G"})
    assert "cache-size" not in device and VirtiofsLayer().needs().properties == ()
    assert with_window.needs().properties == ("vhost-user-fs-pci.cache-size",)
    demands = with_window.demands(SERVED, "disk0")
    assert demands.devices.devices[0]["cache-size"] == 16 * 1024**3
    assert demands.cold, "a window has no room in the address space of a guest that has booted without"
    needs = VirtiofsdLayer(path="/opt/virtiofsd").needs()
    assert (needs.programs, needs.paths) == ((), ("/opt/virtiofsd",))


REFUSED = json.loads(sample(__file__, "cases/refused-shares.json"))


@pytest.mark.parametrize(("layers", "kind", "said"), REFUSED, ids=str)
def test_a_share_that_can_not_be_is_refused_when_the_study_is_loaded(layers: list[str], kind: str, said: str) -> None:
    text = sample(__file__, "cases/folder.toml", kind=kind, layers=", ".join(layers))
    with pytest.raises(UserError, match=said) as refused:
        parse_study(text.encode(), "study.toml", lambda name: "")
    assert str(refused.value).startswith("study.toml: line 6: "), refused.value
