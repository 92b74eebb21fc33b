"""A network disk is used once the kernel has added all of it, and a device that stays is given back as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from storlab.errors import TrialError
from storlab.layers.base import LayerContext
from storlab.layers.net import initiator, nbd
from storlab.layers.resources import Export
from storlab.nodes.kinds.local import local_node

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


def test_a_disk_is_waited_for_until_its_queue_is_there(disk: Path) -> None:
    async def check() -> int:
        async with local_node("client") as node:
            waiting = asyncio.create_task(initiator.complete(node, "null"))
            await asyncio.sleep(3 * initiator.LOOK)
            assert not waiting.done()
            add_queue(disk)
            return await waiting

    assert asyncio.run(check()) == 2048 * 512


@pytest.mark.parametrize(
    ("name", "size", "lacks"),
    [
        ("null", "2048", "no queue in sysfs"),
        ("null", "0", "no size and no queue in sysfs"),
        ("gone", None, "no size and no queue in sysfs and no file /dev/gone"),
    ],
)
def test_a_disk_that_is_never_complete_is_named_with_what_it_lacks(
    disk: Path, name: str, size: str | None, lacks: str
) -> None:
    async def check() -> None:
        async with local_node("client") as node:
            if size is not None:
                (disk.parent / name / "size").write_text(f"{size}\n")
            said = f"node client: the disk {name} is connected, but 0.1 s later it has {lacks}$"
            with pytest.raises(TrialError, match=said):
                await initiator.complete(node, name, patience=0.1)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("served", "before", "journalled"),
    [
        (True, "write through", ["write through"]),  # since Linux 6.11, after a user who wrote that there
        (True, "write back", []),
        (False, "write through", []),
        (False, "write back", ["write back"]),
    ],
)
def test_the_cache_of_a_device_of_nbd_is_set_for_what_is_served_and_put_back(
    disk: Path, served: bool, before: str, journalled: list[str]
) -> None:
    add_queue(disk, write_cache=before)
    (disk.parent / "nbd9999").symlink_to(disk)
    layer = nbd.NbdLayer.model_validate({"layer": "nbd"})
    export = cast(Export, mock.Mock(write_cache=served, node="server"))
    entries: list[Mapping[str, Any]] = []

    async def register(undo: str, arguments: Mapping[str, Any]) -> None:
        assert (undo, (disk / "queue" / "write_cache").read_text()) == ("nbd.write-cache", f"{before}\n")
        entries.append(arguments)

    async def check() -> None:
        async with local_node("client") as node:
            context = LayerContext(node, str(disk.parent), 0, "20260102-030405-abcd", register)
            await layer._tune("nbd9999", export, context)
            assert (disk / "queue" / "write_cache").read_text() == f"write {'back' if served else 'through'}\n"
            for arguments in entries:
                nbd._restore_cache.check(arguments, context.run)
                await nbd._restore_cache.function(node, arguments)

    asyncio.run(check())
    assert [(each["device"], each["cache"]) for each in entries] == [("/dev/nbd9999", cache) for cache in journalled]
    assert (disk / "queue" / "write_cache").read_text() == f"{before}\n"
