"""Programs that serve NBD, read and written through a socket, and network disks that the kernel has added whole."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from laboratory.devices import sh
from laboratory.samples import sample
from storlab.base.errors import CommandFailed, TrialError
from storlab.layers.base import LayerContext
from storlab.layers.net import initiator, nbd
from storlab.layers.net.nbd_export import SERVERS, NbdExportLayer, NbdProgram, Offer, parse_nbd_list
from storlab.layers.resources import Disk, Export, File, Server
from storlab.layers.server.running import is_listening
from storlab.layers.stack import type_errors
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Ports
from storlab.nodes.undo import Entry

from .sites import RUN, Ground, ground_in, parse

FILE = {"layer": "file", "size": "16M"}
EXPORT = {"layer": "nbd-export"}
RELAY = {"layer": "relay"}


def uri(export: Export) -> str:
    server = export.server
    if server["type"] == "unix":
        return f"nbd+unix:///{export.export}?socket={server['path']}"
    return f"nbd://{server['host']}:{server['port']}/{export.export}"


def server_of(ground: Ground) -> int:
    """The process of qemu-nbd."""
    (process,) = ground.node.named.values()
    assert process.pid is not None
    return process.pid


def round_trip(export: Export) -> None:
    sh("qemu-io", "-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "flush", uri(export))
    assert "read 65536/65536" in sh("qemu-io", "-f", "raw", "-c", "read -P 0x5a 1M 64k", uri(export))


def export_of(resource: object) -> Export:
    assert isinstance(resource, Export)
    return resource


CLONE = {"layer": "image-clone", "base": {"size": "16M", "written": "1M"}}
MODES = [
    (cache, aio)
    for cache in ("none", "writeback", "writethrough", "directsync", "unsafe")
    for aio in ("threads", "native", "io_uring")
    if aio != "native" or cache in ("none", "directsync")
]


@pytest.mark.parametrize("below", [FILE, CLONE], ids=lambda layer: layer["layer"])
@pytest.mark.parametrize(("cache", "aio"), MODES)
async def test_what_is_written_is_read_back(ground: Ground, below: dict[str, object], cache: str, aio: str) -> None:
    standing = await ground.set_up(below, {**EXPORT, "cache": cache, "aio": aio}, owner="vm-1")
    export, facts = export_of(standing.resource), standing.facts[-1]
    assert (export.export, export.size, facts["transport"]) == ("vm-1", 16 * 1024**2, "unix")
    assert facts["advertised"]["size"] == export.size
    assert {"flush", "fua"} <= set(facts["advertised"]["flags"])
    assert (facts["cache"], facts["aio"], facts["no_flush"]) == (cache, aio, cache == "unsafe")
    await asyncio.to_thread(round_trip, export)
    pid = server_of(ground)
    assert f"stopped qemu-nbd (process {pid})" in await ground.tear_down()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.needs("root")
async def test_a_disk_is_exported_too_and_several_clients_may_share_it(ground: Ground) -> None:
    standing = await ground.set_up(FILE, {"layer": "loop"}, {**EXPORT, "shared": 2})
    assert "multi" in standing.facts[-1]["advertised"]["flags"]
    await asyncio.to_thread(round_trip, export_of(standing.resource))


async def test_a_loop_device_that_somebody_looks_at_is_gone_once_its_undo_says_so(ground: Ground) -> None:
    disk = (await ground.set_up(FILE, {"layer": "loop"})).resource
    assert isinstance(disk, Disk)
    await ground.node.start(["sh", "-c", f"exec sleep 0.5 < {disk.path}"])
    assert any("detached" in did for did in await ground.tear_down())


async def test_nodes_with_an_address_export_over_tcp_at_ports_that_are_free_and_relay_that(ground: Ground) -> None:
    with pytest.raises(TrialError, match="listens on no network, so nothing can be relayed"):
        await ground.set_up(FILE, EXPORT, RELAY, owner="socket")
    ground.node = replace(ground.node, address="127.0.0.1")
    stacks = await asyncio.gather(*(ground.set_up(FILE, EXPORT, *[RELAY] * (n % 2), owner=f"vm-{n}") for n in range(4)))
    exports = [export_of(standing.resource) for standing in stacks]
    assert {export.server["type"] for export in exports} == {"inet"}
    assert len({export.server["port"] for export in exports}) == 4
    for export in exports:
        await asyncio.to_thread(round_trip, export)


async def test_a_port_that_somebody_else_has_is_passed_over(ground: Ground) -> None:
    ground.node, next_port = replace(ground.node, address="127.0.0.1", ports=Ports()), Ports.next_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with mock.patch.object(Ports, "next_port", lambda ports, first: next_port(ports, port)):
            export = export_of((await ground.set_up(FILE, EXPORT)).resource)
    assert int(export.server["port"]) > port
    await asyncio.to_thread(round_trip, export)


async def test_what_the_server_says_is_the_reason_of_the_failure(ground: Ground) -> None:
    (image,) = parse([FILE])
    below = await image.set_up(None, ground.context())
    assert below is not None
    Path(f"{ground.scratch}/0-file.img").unlink()
    with pytest.raises(CommandFailed, match=r"qemu-nbd ended with status 1: .*No such file or directory"):
        await parse([EXPORT])[0].set_up(below, ground.context(1))


async def test_a_server_that_was_killed_is_taken_down_without_a_word(ground: Ground) -> None:
    await ground.set_up(FILE, EXPORT)
    (process,) = ground.node.named.values()
    os.kill(server_of(ground), signal.SIGKILL)
    await process.rest()
    assert [words for words in await ground.tear_down() if "qemu-nbd" in words] == []


async def test_where_a_socket_would_have_too_long_a_path_it_is_in_a_short_folder_of_its_own(short_path: Path) -> None:
    async with ground_in(short_path / ("x" * 100)) as ground:
        export = (await ground.set_up(FILE, EXPORT)).resource
        assert isinstance(export, Export)
        socket = Path(export.server["path"])
        assert socket.is_socket() and len(str(socket)) <= 107
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        await ground.tear_down()
        assert not socket.parent.exists()


def test_what_may_stand_on_an_export_is_known_before_anything_is_made() -> None:
    """A relay gives what it takes, and serves it elsewhere."""
    assert type_errors(parse([FILE, EXPORT, RELAY, {"layer": "nbd"}]), (Disk,)) == []
    assert type_errors(parse([FILE, EXPORT, RELAY, {"layer": "connect"}]), (Export,)) == []
    assert type_errors(parse([FILE, RELAY]), (Server,))[0][1].startswith("layer relay takes a Server or Export")
    ((position, message),) = type_errors(parse([FILE, EXPORT, {"layer": "mkfs", "type": "ext4"}]), [Disk])
    assert (position, message) == (2, "layer mkfs takes a Disk, but layer nbd-export gives an Export")
    for server in ("nbdkit", "nbd-server"):
        ((position, message),) = type_errors(parse([CLONE, {**EXPORT, "server": server}]), [Export])
        assert position == 1
        assert 'gives a qcow2 file: write server = "qemu-nbd", or make it a raw one' in message
    assert type_errors(parse([CLONE, EXPORT]), [Export]) == []


LISTING = (Path(__file__).parent / "golden" / "nbd-list.txt").read_text()


def test_a_list_of_exports_gives_what_each_advertises_and_one_of_sockets_who_listens() -> None:
    first, second = (parse_nbd_list(LISTING)[name] for name in ("vm-1", "it's"))
    assert (first["size"], first["min_block"], second) == (67108864, 1, {"size": 12})
    assert first["flags"][:3] == ["block-status-payload", "cache", "df"]
    assert {"flush", "fua", "trim"} <= set(first["flags"])
    assert [is_listening(SOCKETS, port) for port in (10809, 10810, 10811)] == [True, False, False]


FOLDER = "/scratch/1-nbd-export"
TCP = {"type": "inet", "host": "10.213.0.2", "port": "10809"}
UNIX = {"type": "unix", "path": f"{FOLDER}/socket"}


def offer(address: dict[str, str], *, name: str = "vm-1", path: str = "/scratch/disk.img", **keys: Any) -> Offer:
    modes: dict[str, Any] = {"cache": "writeback", "aio": "threads", "discard": True, "shared": 2, **keys}
    return Offer(File("server", path, 2**24), name, address, FOLDER, **modes)


def test_nbdkit_stays_in_the_foreground_and_nbd_server_has_a_configuration_of_its_own() -> None:
    begin = ["nbdkit", "--foreground", f"--pidfile={FOLDER}/pid"]
    end = ["file", "file=/scratch/disk.img"]
    nbdkit = SERVERS["nbdkit"]
    assert nbdkit.command(offer(TCP)) == [*begin, "--ipaddr=10.213.0.2", "--port=10809", *end]
    assert nbdkit.command(offer(UNIX)) == [*begin, f"--unix={FOLDER}/socket", *end]
    assert nbdkit.configuration(offer(TCP)) == {}
    server = SERVERS["nbd-server"]
    words = ["nbd-server", f"{FOLDER}/nbd-server.conf", f"{FOLDER}/pid"]
    assert server.command(offer(TCP)) == ["bash", f"{FOLDER}/start.sh", *words, "10.213.0.2", "10809"]
    assert server.command(offer(UNIX)) == ["bash", f"{FOLDER}/start.sh", *words, "", ""]
    assert server.configuration(offer(TCP, name=server.name("vm-1")))["nbd-server.conf"] == (
        "[generic]\nallowlist = true\nlistenaddr = 10.213.0.2\nport = 10809\n\n"
        "[disk-vm-1]\nexportname = /scratch/disk.img\nflush = true\nfua = true\nsync = false\ntrim = true\n"
    )
    text = server.configuration(offer(UNIX, path="/a\\b", cache="writethrough", discard=False))["nbd-server.conf"]
    assert text == (
        f"[generic]\nallowlist = true\nunixsock = {FOLDER}/socket\n\n"
        "[vm-1]\nexportname = /a\\\\b\nflush = false\nfua = false\nsync = true\ntrim = false\n"
    )


@pytest.mark.parametrize("server", SERVERS)
def test_each_program_is_what_the_layer_needs_and_has_a_default_that_it_can_do(server: NbdProgram) -> None:
    layer = NbdExportLayer(server=server)
    assert layer.needs().programs == (server,)
    assert layer._cache == ("none" if server == "qemu-nbd" else "writeback")


SOCKETS = sample(__file__, "golden/proc_net_tcp.txt")


QUEUE = {
    "max_hw_sectors_kb": "1024", "max_sectors_kb": "512", "write_cache": "write back", "scheduler": "none",
    "nr_requests": "64", "read_ahead_kb": "4", "rotational": "1", "wbt_lat_usec": "0",
}  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in sysfs of ``null``, which is in /dev already: without its queue, as the kernel adds it at first."""
    folder = tmp_path / "null"
    folder.mkdir()
    (folder / "size").write_text("2048\n")
    for module in (initiator, nbd):
        monkeypatch.setattr(module, "sysfs", lambda name: str(tmp_path / name))
        monkeypatch.setattr(module, "put", put)
    return folder


async def put(_: object, folder: str, values: dict[str, str], read: tuple[str, ...] = ()) -> list[str]:
    """As sysfs takes a value: whole."""
    for name, value in values.items():
        Path(folder, name).write_text(f"{value}\n")
    return [Path(folder, name).read_text().strip() for name in read]


def add_queue(disk: Path, **values: str) -> None:
    (disk / "queue").mkdir()
    for name, value in {**QUEUE, **values}.items():
        (disk / "queue" / name).write_text(f"{value}\n")


async def test_a_disk_is_waited_for_until_its_queue_is_there(disk: Path) -> None:
    async with local_node("client") as node:
        waiting = asyncio.create_task(initiator.complete(node, "null"))
        await asyncio.sleep(3 * initiator.LOOK)
        assert not waiting.done()
        add_queue(disk)
        assert await waiting == 2048 * 512


@pytest.mark.parametrize(
    ("name", "size", "lacks"),
    [
        ("null", "2048", "no queue in sysfs"),
        ("null", "0", "no size and no queue in sysfs"),
        ("gone", None, "no size and no queue in sysfs and no file /dev/gone"),
    ],
)
async def test_what_a_disk_lacks_for_ever_is_named(disk: Path, name: str, size: str | None, lacks: str) -> None:
    async with local_node("client") as node:
        if size is not None:
            (disk.parent / name / "size").write_text(f"{size}\n")
        said = f"node client: the disk {name} is connected, but 0.1 s later it has {lacks}$"
        with pytest.raises(TrialError, match=said):
            await initiator.complete(node, name, patience=0.1)


@pytest.mark.parametrize(
    ("served", "before", "journalled"),
    [
        (True, "write through", ["write through"]),  # since Linux 6.11, after a user who wrote that there
        (True, "write back", []),
        (False, "write through", []),
        (False, "write back", ["write back"]),
    ],
)
async def test_the_cache_of_a_device_of_nbd_is_set_for_what_is_served_and_put_back(
    disk: Path, served: bool, before: str, journalled: list[str]
) -> None:
    add_queue(disk, write_cache=before)
    (disk.parent / "nbd9999").symlink_to(disk)
    layer = nbd.NbdLayer.model_validate({"layer": "nbd"})
    export = cast(Export, mock.Mock(write_cache=served, node="server"))
    cache = disk / "queue" / "write_cache"
    entries: list[Mapping[str, Any]] = []

    async def register(*announced: Entry) -> None:
        ((undo, arguments),) = announced
        assert (undo, cache.read_text()) == ("nbd.write-cache", f"{before}\n")
        entries.append(arguments)

    async with local_node("client") as node:
        context = LayerContext(node, str(disk.parent), 0, RUN, register)
        await layer._tune("nbd9999", export, context)
        assert cache.read_text() == f"write {'back' if served else 'through'}\n"
        for arguments in entries:
            nbd._restore_cache.check(arguments, context.run, noted=True)
            await nbd._restore_cache.function(node, **arguments)
    assert [(each["device"], each["cache"]) for each in entries] == [("/dev/nbd9999", wanted) for wanted in journalled]
    assert cache.read_text() == f"{before}\n"
