"""Exports of qemu-nbd: what lies below, read and written through a socket, and the end of the server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laboratory import needs_root
from laboratory.devices import sh
from storlab.errors import CommandFailed
from storlab.layers.resources import Disk, Export
from storlab.layers.server.nbd_export import parse_nbd_list
from storlab.layers.stack import type_errors
from storlab.nodes.node import Ports

from .sites import Ground, ground_in, parse

FILE = {"layer": "file", "size": "16M"}
EXPORT = {"layer": "nbd-export"}


def uri(export: Export) -> str:
    server = export.server
    if server["type"] == "unix":
        return f"nbd+unix:///{export.export}?socket={server['path']}"
    return f"nbd://{server['host']}:{server['port']}/{export.export}"


def servers(ground: Ground) -> list[int]:
    """Processes of qemu-nbd that serve something in this scratch folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"qemu-nbd" and any(word.startswith(f"--pid-file={ground.scratch}".encode()) for word in words):
            found.append(int(path.parent.name))
    return found


def round_trip(export: Export) -> None:
    sh("qemu-io", "-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "flush", uri(export))
    assert "read 65536/65536" in sh("qemu-io", "-f", "raw", "-c", "read -P 0x5a 1M 64k", uri(export))


class PortsFrom(Ports):
    """Hands out this port first, whatever is asked for."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def next_port(self, first: int) -> int:
        return super().next_port(self._first)


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
def test_what_is_written_through_a_socket_is_read_back(
    short_path: Path, below: dict[str, object], cache: str, aio: str
) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            standing = await ground.set_up(below, {**EXPORT, "cache": cache, "aio": aio}, owner="vm-1")
            export, facts = export_of(standing.resource), standing.facts[-1]
            assert (export.export, export.size) == ("vm-1", 16 * 1024**2)
            assert facts["transport"] == "unix"
            assert facts["advertised"]["size"] == export.size
            assert {"flush", "fua"} <= set(facts["advertised"]["flags"])
            assert (facts["cache"], facts["aio"], facts["no_flush"]) == (cache, aio, cache == "unsafe")
            await asyncio.to_thread(round_trip, export)
            (pid,) = servers(ground)
            assert f"stopped qemu-nbd (process {pid})" in await ground.tear_down()
            assert servers(ground) == []

    asyncio.run(check())


@needs_root
def test_a_disk_is_exported_too(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            standing = await ground.set_up(FILE, {"layer": "loop"}, EXPORT)
            await asyncio.to_thread(round_trip, export_of(standing.resource))

    asyncio.run(check())


def test_nodes_with_an_address_export_over_tcp_at_ports_that_are_free(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            ground.node = replace(ground.node, address="127.0.0.1")
            stacks = await asyncio.gather(*(ground.set_up(FILE, EXPORT, owner=f"vm-{n}") for n in range(1, 5)))
            exports = [export_of(standing.resource) for standing in stacks]
            assert {export.server["type"] for export in exports} == {"inet"}
            assert len({export.server["port"] for export in exports}) == 4
            for export in exports:
                await asyncio.to_thread(round_trip, export)

    asyncio.run(check())


def test_a_port_that_somebody_else_has_is_passed_over(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                ground.node = replace(ground.node, address="127.0.0.1", ports=PortsFrom(port))
                export = export_of((await ground.set_up(FILE, EXPORT)).resource)
            assert int(export.server["port"]) > port
            await asyncio.to_thread(round_trip, export)

    asyncio.run(check())


def test_several_clients_may_share_an_export(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            standing = await ground.set_up(FILE, {**EXPORT, "shared": 2})
            assert "multi" in standing.facts[-1]["advertised"]["flags"]

    asyncio.run(check())


def test_what_the_server_says_is_the_reason_of_the_failure(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            (image,) = parse([FILE])
            below = await image.set_up(None, ground.context())
            assert below is not None
            Path(f"{ground.scratch}/0-file.img").unlink()
            with pytest.raises(CommandFailed, match=r"qemu-nbd ended with status 1: .*No such file or directory"):
                await parse([EXPORT])[0].set_up(below, ground.context(1))

    asyncio.run(check())


def test_where_a_socket_would_have_too_long_a_path_it_is_in_a_short_folder_of_its_own(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path / ("x" * 100)) as ground:
            export = (await ground.set_up(FILE, EXPORT)).resource
            assert isinstance(export, Export)
            socket = Path(export.server["path"])
            assert socket.is_socket() and len(str(socket)) <= 107
            assert socket.parent.stat().st_mode & 0o777 == 0o700
            await ground.tear_down()
            assert not socket.parent.exists()

    asyncio.run(check())


def test_a_server_that_was_killed_is_taken_down_without_a_word(short_path: Path) -> None:
    async def check() -> None:
        async with ground_in(short_path) as ground:
            await ground.set_up(FILE, EXPORT)
            (pid,) = servers(ground)
            (process,) = ground.node.named.values()
            os.kill(pid, signal.SIGKILL)
            await process.rest()
            assert [words for words in await ground.tear_down() if "qemu-nbd" in words] == []

    asyncio.run(check())


def test_linux_aio_through_the_page_cache_is_refused() -> None:
    for layer in ("nbd-export", "virtio-blk", "virtio-scsi", "nvme"):
        with pytest.raises(ValidationError, match='aio = "native" needs cache = "none" or "directsync"'):
            parse([{"layer": layer, "aio": "native", "cache": "writeback"}])


def test_an_export_is_nothing_to_mount() -> None:
    ((position, message),) = type_errors(parse([FILE, EXPORT, {"layer": "mkfs", "type": "ext4"}]), [Disk])
    assert (position, message) == (2, "layer mkfs takes a Disk, but layer nbd-export gives an Export")


LISTING = """exports available: 2
 export: 'vm-1'
  size:  67108864
  flags: 0x1ced ( flush fua trim zeroes df cache fast-zero block-status-payload )
  min block: 1
  opt block: 4096
  max block: 33554432
  transaction size: 64-bit
  available meta contexts: 1
   base:allocation
 export: 'it's'
  size:  12
"""


def test_a_list_of_exports_gives_what_each_advertises() -> None:
    exports = parse_nbd_list(LISTING)
    assert exports["vm-1"]["size"] == 67108864
    assert exports["vm-1"]["flags"][:3] == ["block-status-payload", "cache", "df"]
    assert {"flush", "fua", "trim"} <= set(exports["vm-1"]["flags"])
    assert exports["vm-1"]["min_block"] == 1
    assert exports["it's"] == {"size": 12}


@given(text=st.text(), place=st.integers(0, len(LISTING)), length=st.integers(0, 40))
def test_no_list_and_no_damage_is_an_exception(text: str, place: int, length: int) -> None:
    parse_nbd_list(text)
    parse_nbd_list(LISTING[:place] + text[:3] + LISTING[place + length :])
