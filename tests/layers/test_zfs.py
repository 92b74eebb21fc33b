"""ZFS in a real guest: one is booted, and every test sets up a pool of its own there, and tears it down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laboratory.samples import sample
from storlab.base.errors import CommandFailed, SafetyError, StorlabError, TrialError, Unsupported, UserError
from storlab.layers.database.data_set import sql
from storlab.layers.resources import Dir, Disk, Export, File, Pool, Server
from storlab.layers.zfs.pool import numbers_of
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node
from storlab.probes.base import ProbeContext, ProbeRecord, Window
from storlab.probes.subject import Subject
from storlab.probes.zfs.probe import ZfsProbe
from storlab.run.recovery.undoing import remove_leftovers, undo_table
from storlab.suites.places.kinds import HereMaker
from storlab.suites.records.folder import Here

from .sites import RUN, Ground, entered, guest, parse
from .test_attachments import attach_layer
from .test_nbd_export import uri

POOL = {"layer": "zpool", "size": "256M", "ashift": 12, "dataset": {"compression": "off"}}
BASE = {"size": "32M", "written": "8M"}
CLONE = {"layer": "zvol", "base": BASE}
SCRATCH = f"/var/tmp/storlab-{RUN}/storage-0123456789ab"
PARAMETER = "/sys/module/zfs/parameters/zfs_txg_timeout"

pytestmark = pytest.mark.needs("zfs")


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop, as the guest is one."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def storage(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A guest with ZFS and a spare disk."""
    spare = tmp_path_factory.mktemp("storage") / "spare.img"
    with spare.open("wb") as file:
        file.truncate(256 * 1024**2)

    @asynccontextmanager
    async def storage_guest() -> AsyncIterator[Node]:
        disk = attach_layer("virtio-blk").demands(File("host", str(spare), 256 * 1024**2), "disk0").devices
        async with local_node("host") as host, guest(host, "storage", [disk], "zfs") as running:
            await running.node.run(["modprobe", "zfs"])
            yield running.node

    with entered(runner, storage_guest()) as node:
        yield node


@pytest.fixture
def ground(runner: asyncio.Runner, storage: Node) -> Iterator[Ground]:
    with entered(runner, scratch_on(storage)) as ground:
        yield ground


@asynccontextmanager
async def scratch_on(node: Node) -> AsyncIterator[Ground]:
    """A fresh scratch folder, of which nothing may be left afterwards, nor of any pool."""
    await node.run(["mkdir", "--parents", SCRATCH])
    ground = Ground(node, SCRATCH)
    try:
        yield ground
    finally:
        await ground.tear_down()
    assert await node.output("zpool", "list", "-H") == ""
    assert await node.output("find", SCRATCH, "-mindepth", "1") == ""
    assert await node.output("find", "/dev", "-name", "storlab*", "-path", f"*{RUN}*") == ""
    assert "zfs" not in [line.split()[2] for line in (await node.read_text("/proc/mounts")).splitlines()]


async def pool_on(ground: Ground, **more: Any) -> Pool:
    pool = (await ground.set_up({**POOL, **more})).resource
    assert isinstance(pool, Pool)
    return pool


async def layer_on(ground: Ground, pool: Pool, layer: dict[str, Any], owner: str = "") -> tuple[Any, dict[str, Any]]:
    """The resource, and the facts of it."""
    (parsed,) = parse([layer])
    context = ground.context(1, owner)
    resource = await parsed.set_up(pool, context)
    return resource, await parsed.facts(resource, context)


async def property_of(ground: Ground, dataset: str, name: str) -> str:
    return (await ground.node.output("zfs", "get", "-Hp", "-o", "value", name, dataset)).strip()


async def test_a_pool_is_as_asked_and_its_facts_say_so_and_what_limits_its_allocators(ground: Ground) -> None:
    layer = {**POOL, "layout": "mirror", "properties": {"autotrim": True}, "dataset": {"recordsize": "16k"}}
    standing = await ground.set_up({**layer, "disks": 3, "module": {"spa_num_allocators": 8}})
    (facts,) = standing.facts
    assert isinstance(standing.resource, Pool) and standing.resource.name.startswith(f"storlab-{RUN}-storage-0-")
    assert facts["layout"] == {"mirror-0": {f"{SCRATCH}/0-disk-{number}.img": "ONLINE" for number in range(3)}}
    assert facts["properties"].items() >= {"ashift": 12, "autotrim": "on", "cachefile": "none"}.items()
    own = [name for name, source in facts["sources"].items() if source == "local" and not name.startswith("feature@")]
    assert (sorted(own), facts["dataset"]["recordsize"]) == (["ashift", "autotrim", "cachefile"], 16384)
    assert (facts["dataset"]["mounted"], facts["version"].keys()) == ("no", {"programs", "module"})
    assert facts["module"]["zfs_txg_timeout"] == 5
    limited = {"asked": 8, "effective": 1, "limited_by": "spa_cpus_per_allocator"}
    assert facts["allocators"] == {**limited, "cpus": int(await ground.node.output("nproc"))}


@pytest.mark.parametrize("by", ["the layer", "a command of the study's"])
async def test_disks_of_a_pool_are_delayed_and_it_can_be_destroyed_all_the_same(ground: Ground, by: str) -> None:
    """ZFS destroys no pool into which something is injected."""
    delays = ["20:1", "30:2"] if by == "the layer" else []
    standing = await ground.set_up({**POOL, "layout": "mirror", "delays": delays})
    assert isinstance(standing.resource, Pool)
    name = standing.resource.name
    if delays:
        assert standing.facts[0]["delays"] == delays
    else:
        await ground.node.run(["zinject", "-d", f"{SCRATCH}/0-disk-0.img", "-D", "20:1", name])
    listed = await ground.node.output("zinject")
    assert len(numbers_of(listed, name)) == (4 if delays else 1), listed
    assert numbers_of(listed, f"{name}x") == []
    assert any(words == f"destroyed the pool {name}" for words in await ground.tear_down())
    assert numbers_of(await ground.node.output("zinject"), name) == []


_LOAD = """cd "$1" && for number in $(seq 40); do
dd if=/dev/urandom of=synced bs=4k count=1 conv=notrunc,fsync || exit; done
dd if=/dev/urandom of=dirty bs=1M count=8 && zpool sync"""


async def test_the_probe_counts_a_commit_for_each_fsync_and_what_was_dirty(ground: Ground, tmp_path: Path) -> None:
    pool = await pool_on(ground)
    directory, _ = await layer_on(ground, pool, {"layer": "zfs"})
    watched = Subject(group="storage", pools=(pool.name,))
    probe = ZfsProbe(interval=0.5, histograms=True)
    async with probe.watch(ProbeContext(ground.node, tmp_path, watched)):
        await ground.node.run(["sh", "-c", _LOAD, "sh", directory.path])
    measured = probe.parse(ProbeRecord(tmp_path, Window(0.0, 1e9), watched))
    found = measured.totals()
    assert measured.warnings == ()
    assert found["zil.commits"] == 40 >= found["zil.flushes"] > 0
    assert 39 * 4096 <= found["zil.record.bytes"] <= found["zil.write.bytes"], "the first makes the file"
    assert measured.histograms.filter(metric="vdev.write.disk.wait")["count"].sum() > 40
    assert 0 <= found["vdev.async-write.aggregated.share"] < 1
    written = 40 * 4096 + 8 * 1024**2
    assert written <= found["txg.dirty.mean"] * found["txg.count"] < 1.5 * written < 3 * found["txg.write.bytes"]
    assert 0 < found["txg.sync.mean"] <= found["txg.sync.max"] and found["txg.count"] >= 1


@pytest.mark.parametrize(("layout", "disks"), [("raidz1", None), ("raidz2", 5), ("draid1:2d:4c:1s", 4)])
async def test_pools_lie_on_disks_a_loop_device_or_a_file(ground: Ground, layout: str, disks: int | None) -> None:
    layer = {"layer": "zpool", "size": "128M", "layout": layout, **({"disks": disks} if disks else {})}
    (facts,) = (await ground.set_up(layer)).facts
    kind, vdevs = next(iter(facts["layout"].items()))
    assert kind.startswith(layout.partition(":")[0])
    assert len(vdevs) == (disks or 3)
    if disks is None:
        file = {"layer": "file", "size": "128M"}
        await ground.set_up(file, {"layer": "loop"}, {"layer": "zpool"}, owner="loop")
        await ground.set_up(file, {"layer": "zpool"}, owner="file")


async def test_many_volumes_and_file_systems_are_one_directory_for_a_load(ground: Ground) -> None:
    layer = {"layer": "zvols", "count": 2, "size": "16M", "properties": {"copies": 2}}
    pool = await pool_on(ground)
    volumes, facts = await layer_on(ground, pool, layer)
    await ground.node.run(["dd", "if=/dev/zero", f"of={volumes.path}/1", "bs=1M", "count=1", "oflag=direct"])
    assert (facts["volumes"], facts["properties"]["copies"], facts["sources"]["copies"]) == (2, 2, "inherited")
    links = [(await ground.node.output("readlink", f"{volumes.path}/{name}")).strip() for name in "01"]
    assert tuple(links) == volumes.devices
    directory, _ = await layer_on(ground, pool, {"layer": "zfs", "datasets": 2, "recordsize": "8k"}, "other")
    assert await ground.node.output("findmnt", "-no", "SOURCE", f"{directory.path}/1") == f"{pool.name}/other-1/1\n"
    assert await property_of(ground, f"{pool.name}/other-1/0", "recordsize") == "8192"


async def parameter(ground: Ground) -> str:
    return (await ground.node.read_text(PARAMETER)).strip()


async def test_parameters_of_the_module_are_set_before_a_pool_and_restored_after_the_last(ground: Ground) -> None:
    layer = {**POOL, "module": {"zfs_txg_timeout": 7}}
    (facts,) = (await ground.set_up(layer, owner="first")).facts
    assert facts["module"]["zfs_txg_timeout"] == 7 == int(await parameter(ground))
    names = [name for name, _ in ground.journal]
    assert names.index("zfs.parameter") < names.index("zpool.destroy")
    await ground.set_up(layer, owner="second")
    assert [name for name, _ in ground.journal[len(names) :]].count("zfs.parameter") == 1
    for name, arguments in reversed(ground.journal[: len(names)]):
        await undo_table()[name].function(ground.node, **arguments)
    assert await parameter(ground) == "7"
    assert "set ZFS's zfs_txg_timeout back to 5" in await ground.tear_down()
    assert await parameter(ground) == "5"


@pytest.mark.parametrize(
    ("first", "second"),
    [({"zfs_txg_timeout": 7}, {"zfs_txg_timeout": 9}), ({"zfs_txg_timeout": 7}, {}), ({}, {"zfs_txg_timeout": 7})],
)
async def test_pools_that_stand_together_must_want_the_same_of_the_module(
    ground: Ground, first: dict[str, int], second: dict[str, int]
) -> None:
    await ground.set_up({**POOL, "module": first}, owner="first")
    before = await parameter(ground)
    with pytest.raises(TrialError, match=r'ZFS has one zfs_txg_timeout for all pools.* write keep = "trial"'):
        await ground.set_up({**POOL, "module": second}, owner="second")
    assert await parameter(ground) == before
    await ground.tear_down()
    assert await parameter(ground) == "5"
    ground.journal.clear()
    await ground.set_up({**POOL, "module": second}, owner="second")


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({"module": {"zfs_non": 1}}, Unsupported, r"ZFS 2\.\S+ on node storage has no module parameter zfs_non"),
        ({"module": {"zfs_txg_timeout": -1}}, Unsupported, "not take -1 for .* zfs_txg_timeout, which stays at 5"),
        ({"properties": {"feature@physical_rewrite": "enabled"}}, CommandFailed, "physical_rewrite' unsupported"),
    ],
)
async def test_what_zfs_or_its_module_refuses_is_told_in_their_words_and_leaves_nothing(
    ground: Ground, keys: dict[str, Any], error: type[StorlabError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await ground.set_up({**POOL, **keys})


async def test_a_volume_is_a_device_and_a_dataset_a_directory_with_their_properties(ground: Ground) -> None:
    wanted = {"sync": "disabled", "logbias": "throughput", "primarycache": "metadata", "compression": "lz4"}
    layer = {"layer": "zvol", "size": "64M", "volblocksize": "4k", "properties": {"checksum": "sha256"}, **wanted}
    pool = await pool_on(ground)
    disk, facts = await layer_on(ground, pool, layer)
    assert isinstance(disk, Disk) and disk.path.startswith("/dev/zd") and disk.size == 64 * 1024**2
    more = {"checksum": "sha256", "volblocksize": 4096, "refreservation": 0}
    assert facts["properties"].items() >= {**wanted, **more}.items()
    assert facts["queue"]["physical_block_size"] == 4096
    assert (facts["sources"]["sync"], facts["sources"]["copies"]) == ("local", "default")
    keys = {"recordsize": "16k", "sync": "always", "atime": False, "properties": {"xattr": "sa"}}
    directory, facts = await layer_on(ground, pool, {"layer": "zfs", **keys}, "other")
    assert isinstance(directory, Dir)
    await ground.node.write(f"{directory.path}/file", b"content")
    there = {"recordsize": 16384, "sync": "always", "atime": "off", "mountpoint": directory.path}
    assert facts["properties"].items() >= there.items()


async def test_a_volume_that_is_not_sparse_reserves_its_size(ground: Ground) -> None:
    pool = await pool_on(ground, size="512M")
    _, facts = await layer_on(ground, pool, {"layer": "zvol", "size": "64M", "sparse": False})
    assert facts["properties"]["refreservation"] >= 64 * 1024**2
    _, facts = await layer_on(ground, pool, {**CLONE, "sparse": False, "size": "48M"}, "vm-1")
    assert facts["properties"]["refreservation"] == facts["properties"]["volsize"] == 48 * 1024**2


async def test_clones_share_the_blocks_of_a_base_that_is_made_once(ground: Ground) -> None:
    pool = await pool_on(ground)
    owners = [f"vm-{number}" for number in range(1, 4)]
    made = await asyncio.gather(*(layer_on(ground, pool, {**CLONE, "size": "64M"}, owner) for owner in owners))
    names = (await ground.node.output("zfs", "list", "-H", "-r", "-t", "volume", "-o", "name", pool.name)).split()
    (base,) = [name for name in names if "/base-" in name]
    assert len(names) == 4
    assert int(await property_of(ground, base, "referenced")) > 8 * 1024**2
    for disk, facts in made:
        assert facts["properties"]["origin"] == f"{base}@base"
        assert facts["properties"]["used"] < 1024**2 < 8 * 1024**2 < facts["properties"]["referenced"]
        assert disk.size == 64 * 1024**2
    sums = {await ground.node.output("sh", "-c", f"head -c 32M {disk.path} | sha256sum") for disk, _ in made}
    assert len(sums) == 1
    await ground.node.run(["dd", "if=/dev/zero", f"of={made[0][0].path}", "bs=1M", "count=1", "conv=fsync"])
    sums = {await ground.node.output("sh", "-c", f"head -c 32M {disk.path} | sha256sum") for disk, _ in made}
    assert len(sums) == 2


async def test_an_image_of_the_users_becomes_a_base(ground: Ground) -> None:
    image = "/var/tmp/mine.qcow2"
    await ground.node.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "8390144"])  # 8M and 1.5k
    await ground.node.run(["qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 1M 4k", image])
    pool = await pool_on(ground)
    disk, _ = await layer_on(ground, pool, {"layer": "zvol", "base": {"file": image}})
    data = await ground.node.output("sh", "-c", f"dd if={disk.path} bs=1M skip=1 count=1 | tr -dc Z | wc -c")
    assert (disk.size, int(data)) == (8 * 1024**2 + 16 * 1024, 4096)
    with pytest.raises(UserError, match="is less than that of the image"):
        await layer_on(ground, pool, {"layer": "zvol", "size": "4M", "base": {"file": image}}, "vm-2")
    await ground.node.run(["rm", image])


async def test_images_lie_on_a_dataset_one_for_each_owner(ground: Ground) -> None:
    directory, _ = await layer_on(ground, await pool_on(ground), {"layer": "zfs"})
    for kind in ({"layer": "image-copy"}, {"layer": "image-clone", "method": "reflink"}):
        (layer,) = parse([{**kind, "base": {"size": "16M", "written": "4M"}}])
        images = await asyncio.gather(*(layer.set_up(directory, ground.context(2, f"vm-{n}")) for n in (1, 2)))
        assert len({image.path for image in images if isinstance(image, File)}) == 2
        facts = await layer.facts(images[0], ground.context(2, "vm-1"))
        assert facts["on"] == "zfs"


async def test_a_database_starts_from_a_clone_of_its_data_whatever_a_trial_before_has_done_to_its_own(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"clone": "zfs", "data": {"tables": 1, "rows": 100}, "pool": "16M", "log_size": "8M"}
    database = {"layer": "mariadb", **keys}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pool = await pool_on(ground, dataset={"compression": "lz4"})
    directory, _ = await layer_on(ground, pool, {"layer": "zfs", "recordsize": "16k"})
    parent = f"{pool.name}/storage-1"
    rows, masters = [], []
    for _ in range(2):
        trial = Ground(ground.node, ground.scratch)
        try:
            (layer,) = parse([database])
            server = await layer.set_up(directory, trial.context(2))
            assert isinstance(server, Server)
            assert (await layer.facts(server, trial.context(2)))["clone"] == "zfs"
            rows.append(await ground.node.output(*sql(server, "SELECT sum(k), count(*) FROM sbtest1")))
            await ground.node.run(sql(server, "DELETE FROM sbtest1"))
            own = f"{parent}/storage-2-data"
            master = await property_of(ground, own, "origin")
            masters.append(await property_of(ground, master, "guid"))
            assert await property_of(ground, own, "recordsize") == "16384"
            assert int(await property_of(ground, own, "used")) < int(await property_of(ground, master, "referenced"))
        finally:
            did = await trial.tear_down()
        assert f"destroyed {own}" in did
        assert any(each.startswith("stopped mariadbd") for each in did)
        names = await ground.node.output("zfs", "list", "-rHp", "-o", "name", parent)
        assert names.split() == [parent, master.partition("@")[0]]
    assert rows[0] == rows[1] and rows[0].split()[1] == "100"
    assert masters[0] == masters[1], "it was not made again"


@pytest.mark.parametrize("address", [None, "127.0.0.1"], ids=["socket", "port"])
async def test_an_export_of_a_volume_can_be_read(ground: Ground, address: str | None) -> None:
    await ground.node.run(["ip", "link", "set", "dev", "lo", "up"])
    ground.node = replace(ground.node, address=address)
    disk, _ = await layer_on(ground, await pool_on(ground), CLONE, "vm-1")
    (layer,) = parse([{"layer": "nbd-export"}])
    export = await layer.set_up(disk, ground.context(2, "vm-1"))
    assert isinstance(export, Export) and export.export == "vm-1"
    assert export.server["type"] == ("inet" if address else "unix")
    copy = "/var/tmp/copy"
    await ground.node.run(["qemu-img", "convert", "-f", "raw", "-O", "raw", uri(export), copy])
    await ground.node.run(["cmp", copy, disk.path])
    await ground.node.run(["rm", copy])


async def test_a_pool_on_a_disk_of_the_users_takes_the_whole_disk_and_leaves_it_blank(ground: Ground) -> None:
    spare = await attach_layer("virtio-blk").set_up(File("host", "/", 0), ground.context())
    standing = await ground.set_up({"layer": "device", "path": spare.path}, {"layer": "zpool"})
    assert isinstance(standing.resource, Pool)
    assert list(standing.facts[1]["layout"].values()) == ["ONLINE"]
    assert "zfs_member" in await ground.node.output("wipefs", "--no-act", spare.path)
    did = await ground.tear_down()
    assert f"wiped the labels of the pool {standing.resource.name} from {spare.path}" in did
    assert await ground.node.output("wipefs", "--no-act", spare.path) == ""


async def test_a_volume_that_is_still_open_goes_once_it_is_let_go(ground: Ground) -> None:
    disk, _ = await layer_on(ground, await pool_on(ground), {"layer": "zvol", "size": "16M"})
    opened = await ground.node.start(["sh", "-c", f"exec 3< {disk.path}; echo open; exec sleep 2"])
    assert await opened.first_line() == b"open"
    assert any(words.startswith("destroyed the pool") for words in await ground.tear_down())


LEFT = sample(__file__, "cases/left-pools.sh")


async def test_what_scripts_left_on_a_runs_own_devices_alone_is_taken_down(ground: Ground) -> None:
    node, folder = ground.node, {"path": SCRATCH.rpartition("/")[0]}
    await node.run(["bash", "-c", LEFT, "sh", SCRATCH])
    here = HereMaker(session=None, adapter=None, here=Here("vm", keep=("onloop",)), folder=Path())  # type: ignore[arg-type]
    with pytest.raises(SafetyError, match=r"a pool is imported \(onfile\), and tests may destroy"):
        await here._refuse_pools(node)
    did = await remove_leftovers.function(node, **folder)
    assert did is not None and "destroyed the pool onloop" in did and "destroyed the pool onfile" in did
    assert "removed the mapping left-by-test" in did and "unmounted" in did
    assert await node.output("losetup", "--list", "--noheadings") == ""
    assert await remove_leftovers.function(node, **folder) is None
    await here._refuse_pools(node)
    await node.run(["sh", "-c", f"rm -r {SCRATCH}/*"])
    other = "/var/tmp/somebody-elses"
    await node.run(["truncate", "--size", "128M", f"{SCRATCH}/mixed", other])
    await node.run(["zpool", "create", "-f", "mixed", f"{SCRATCH}/mixed", "spare", other])
    with pytest.raises(StorlabError, match=r"the pool mixed is on .*, but not only on devices of the run: left alone"):
        await remove_leftovers.function(node, **folder)
    assert (await node.output("zpool", "list", "-H", "-o", "name")).strip() == "mixed"
    await node.run(["zpool", "destroy", "mixed"])
    await node.run(["rm", other, f"{SCRATCH}/mixed"])
