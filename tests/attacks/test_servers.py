"""What servers of disks, and programs that look into disks, could do for whoever found a hole in them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from _pytest.mark import ParameterSet

from laboratory import Laboratory
from laboratory.devices import new_device
from laboratory.samples import sample
from layers.sites import Ground, entered, ground_in
from storlab.base.errors import CommandFailed
from storlab.layers.attach import virtiofs
from storlab.layers.resources import Disk
from storlab.layers.share.sshfs import SshShareLayer
from storlab.nodes.privileges import on_device

pytestmark = pytest.mark.needs("root")
FILE, LOOP = {"layer": "file", "size": "16M"}, {"layer": "loop"}
FOLDER = (FILE, LOOP, {"layer": "mkfs", "type": "ext4"}, {"layer": "mount"})


NBD, TGT = {"layer": "nbd-export"}, {"layer": "iscsi-target", "implementation": "tgt"}
# Capabilities by their numbers in linux/capability.h: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID, SETFCAP.
OF_VIRTIOFSD = frozenset({0, 1, 3, 4, 6, 7, 31})


@pytest.fixture
def ground(runner: asyncio.Runner, lab: Laboratory) -> Iterator[Ground]:
    with entered(runner, ground_in(lab.folder / "ground")) as ground:
        yield ground


def needing(program: str, *layers: Mapping[str, object], has: frozenset[int] | None = None) -> ParameterSet:
    return pytest.param(layers, has, marks=pytest.mark.needs(program), id=f"{program} {len(layers)}")


@pytest.mark.parametrize(
    ("layers", "has"),
    [
        needing("qemu-nbd", FILE, NBD),
        needing("qemu-nbd", FILE, LOOP, NBD),
        needing("tgtd", FILE, TGT),
        needing("tgtd", FILE, LOOP, TGT),
        needing("sshd", *FOLDER, {"layer": "ssh-share"}),
        needing("vblade", FILE, LOOP, {"layer": "aoe-target"}, has=frozenset({13})),  # NET_RAW
        needing("virtiofsd", *FOLDER, {"layer": "virtiofsd"}, has=OF_VIRTIOFSD),
    ],
)
async def test_a_server_has_what_it_serves_and_its_folder_and_no_privilege_but_those_it_declares(
    layers: Sequence[Mapping[str, object]], has: frozenset[int] | None, ground: Ground
) -> None:
    in_network = layers[-1]["layer"] not in ("nbd-export", "virtiofsd")
    ground.node.address = "127.0.0.1" if in_network else None
    standing = await ground.set_up(*layers)
    assert standing.resource is not None
    (server,) = ground.node.named.values()
    process = Path(f"/proc/{server.pid}")
    lines = (process / "status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    own = int(status["Uid"][0]) >= 0x70000000
    assert len({*status["Uid"], *status["Gid"]}) == 1 and own == (has is None)
    assert (not own or status["Groups"] == []) and status["NoNewPrivs"] == ["1"] and status["Seccomp"] == ["2"]
    for kind in ("CapEff", "CapPrm", "CapAmb"):
        assert int(status[kind][0], 16) in (0, sum(1 << number for number in has or ()))
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    root = str((process / "root").readlink()).rstrip("/")  # which virtiofsd has changed to what it serves
    writable = {f"{root}{mount[4]}" for mount in mounts if "rw" in mount[5].split(",")}
    assert [path for path in writable if not path.startswith((ground.scratch, "/tmp/storlab-", "/dev/", "/proc"))] == []
    for space in ("net", "pid", "ipc", "uts"):
        shared = in_network and space == "net"
        assert ((process / "ns" / space).readlink() == Path(f"/proc/self/ns/{space}").readlink()) == shared


async def test_what_looks_into_a_disk_reads_that_disk_and_nothing_else(
    ground: Ground, tmp_path: Path, lab: Laboratory
) -> None:
    disk = (await ground.set_up(FILE, LOOP)).resource
    assert isinstance(disk, Disk)
    looking = on_device(ground.node, disk.path)
    public = lab.folder / "public"
    public.mkdir()
    secret = public / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    assert (await looking.run(["head", "--bytes=4", disk.path])).stdout == bytes(4)
    with new_device(tmp_path / "other.img") as other:
        for words in (
            ["cat", "/etc/shadow"],
            ["cat", str(secret)],
            ["head", "--bytes=4", other.path],
            ["touch", str(public / "made")],
            ["mount", disk.path, "/mnt"],
            ["losetup", "--detach", other.path],
        ):
            with pytest.raises(CommandFailed):
                await looking.run(words)
    assert [path.name for path in public.iterdir()] == ["secret"]


@pytest.mark.parametrize("serves", ["virtiofsd", "ssh-share"])
async def test_a_server_that_was_taken_over_reads_writes_signals_and_mounts_nothing_of_the_machine(
    serves: str, ground: Ground, lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, outside = lab.folder / "hostile", lab.folder / "made"
    hostile.write_text(sample(__file__, "cases/hostile-server.sh", outside=outside, pid=os.getpid()))
    hostile.chmod(0o755)
    monkeypatch.setattr(virtiofs, "find_virtiofsd", lambda _: (str(hostile),))
    monkeypatch.setattr(virtiofs.VirtiofsdLayer, "prepare", AsyncMock())  # it says no version
    monkeypatch.setattr(SshShareLayer, "program", str(hostile))
    ground.node.address = "127.0.0.1"
    with pytest.raises(CommandFailed) as failed:
        await ground.set_up(*FOLDER, {"layer": serves})
    assert failed.value.detail.splitlines()[1:] == ["it could write its own", "it tried"]
    assert not outside.exists()
