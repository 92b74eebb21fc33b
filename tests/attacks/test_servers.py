"""What servers of disks, and programs that look into disks, could do for whoever found a hole in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.devices import new_device
from layers.sites import Ground, entered, ground_in
from storlab.errors import CommandFailed
from storlab.layers.resources import Disk
from storlab.nodes.privileges import on_device

pytestmark = pytest.mark.needs("root")
FILE = {"layer": "file", "size": "16M"}
EXPORT = {"layer": "nbd-export"}


@pytest.fixture
def ground(runner: asyncio.Runner, tmp_path: Path) -> Iterator[Ground]:
    with entered(runner, ground_in(tmp_path)) as ground:
        yield ground


@pytest.mark.needs("qemu-nbd")
@pytest.mark.parametrize("below", [[FILE], [FILE, {"layer": "loop"}]], ids=["file", "disk"])
async def test_a_server_of_nbd_has_what_it_serves_and_its_folder_and_no_privilege(
    below: list[dict[str, object]], ground: Ground
) -> None:
    standing = await ground.set_up(*below, EXPORT)
    assert standing.resource is not None
    (server,) = ground.node.named.values()
    process = Path(f"/proc/{server.pid}")
    lines = (process / "status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert len({*status["Uid"], *status["Gid"]}) == 1 and int(status["Uid"][0]) >= 0x70000000
    assert status["Groups"] == [] and (status["Seccomp"], status["NoNewPrivs"]) == (["2"], ["1"])
    assert {int(status[name][0], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    writable = {mount[4] for mount in mounts if "rw" in mount[5].split(",")}
    assert [path for path in writable if not path.startswith((ground.scratch, "/tmp/storlab-", "/dev/", "/proc"))] == []
    for space in ("net", "pid", "ipc", "uts"):
        assert (process / "ns" / space).readlink() != Path(f"/proc/self/ns/{space}").readlink()


async def test_what_looks_into_a_disk_reads_that_disk_and_nothing_else(
    ground: Ground, tmp_path: Path, lab: Laboratory
) -> None:
    disk = (await ground.set_up(FILE, {"layer": "loop"})).resource
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
