"""What sysfs says of a block device's queue, and the state in which a disk that may have been somebody else's is given;
Documentation/ABI/stable/sysfs-block in the kernel's sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storlab.base.errors import Unsupported, UserError
from storlab.base.text import is_whole, number_or_text
from storlab.layers.block.queue_files import IOSCHED, QUEUE, TUNED
from storlab.layers.block.queue_keys import Queue
from storlab.layers.resources import Disk, Resource
from storlab.nodes.agent import steps
from storlab.nodes.settings import in_use, journalled, read_settings

if TYPE_CHECKING:
    from storlab.layers.base import LayerContext
    from storlab.nodes.node import Node


_DEPTH = "/sys/module/loop/parameters/hw_queue_depth"  # the requests that the driver of loop devices takes at once
_DEFAULT_DEPTH = "128"  # LOOP_DEFAULT_HW_Q_DEPTH
_SECTOR = 512  # bytes, of the sizes in sysfs, whatever the disk's own are
_TRIES = 3  # to look, with what differed set in between: one setting may change another
_DEFAULT_READ_AHEAD = 128  # KiB, VM_READAHEAD_PAGES
_ROTATING = (6, 17)  # the first Linux in which what rotates looks ahead by two requests (blk_apply_bdi_limits)


def sysfs(disk: str) -> str:
    """The folder of a disk by its name, which has slashes where sysfs has exclamation marks."""
    return f"/sys/class/block/{disk.replace('/', '!')}"


async def has_volatile_cache(node: Node, below: Resource) -> bool:
    """Whether what is written there can be lost until it is flushed; of a file that is not known, so it may be."""
    if not isinstance(below, Disk):
        return True
    return "back" in await node.read_text(f"{sysfs(below.name)}/queue/write_cache")


def queue_folder(disk: str, *, partition: bool = False) -> str:
    return f"{sysfs(disk)}/{'../' if partition else ''}queue"


async def queue_facts(node: Node, disk: Disk) -> dict[str, Any]:
    folder = queue_of(disk)
    said = zip(QUEUE, await node.texts(*(f"{folder}/{name}" for name in QUEUE)), strict=True)
    return parse_queue({name: value for name, value in said if value is not None})


def queue_of(disk: Disk) -> str:
    return queue_folder(disk.name, partition=disk.device is not None and disk.device.number != disk.device.whole)


def parse_queue(said: Mapping[str, str]) -> dict[str, Any]:
    """What each file says: numbers become integers, the scheduler in use stands alone."""
    return {name: number_or_text(in_use(value) if name == "scheduler" else value) for name, value in said.items()}


async def remember(disk: Disk, context: LayerContext) -> None:
    """Journal what a queue is, to be put back: the scheduler's own parameters, too, which another one forgets."""
    names = (*TUNED, *(f"iosched/{name}" for own in IOSCHED.values() for name in own))
    were = await read_settings(context.node, (f"{queue_of(disk)}/{name}" for name in names))
    await context.register_undo("settings.restore", **await journalled(context.node, were))


async def tune(node: Node, disk: Disk, queue: Queue) -> None:
    """Set what a study asks of a disk's queue. Raises ``Unsupported`` if the disk does not take it all."""
    folder, asked = queue_of(disk), [*queue.files()]
    if folder.endswith("/../queue"):
        raise UserError(
            f"node {node.name}: {disk.path} is a partition: its queue is that of the whole disk, which others use, "
            "too. Leave queue out, or name the whole disk"
        )
    await put(node, folder, {file: text for _, file, text in asked})
    found = await node.texts(*(f"{folder}/{file}" for _, file, _ in asked))
    for (key, file, wanted), got in zip(asked, found, strict=True):
        if got is None or in_use(got) != wanted:
            why = await _refusal(node, folder, file, got)
            raise Unsupported(f"node {node.name}: queue.{key}: {disk.name} does not take {file} = {wanted}: {why}")


async def _refusal(node: Node, folder: str, file: str, got: str | None) -> str:
    """What the disk offers in place of what was asked."""
    offered, largest, *there = await node.texts(
        *(f"{folder}/{name}" for name in ("scheduler", "max_hw_sectors_kb", *TUNED))
    )
    match file:
        case _ if got is None:
            has = ", ".join(name for name, text in zip(TUNED, there, strict=True) if text is not None)
            return f"it has no such setting, as disks have that are made of others, which are below it. It has {has}"
        case "scheduler":
            one_of = ", ".join(word.strip("[]") for word in (offered or "none").split())
            return f"its kernel offers {one_of}; others are modules, bfq, kyber-iosched and mq-deadline"
        case "max_sectors_kb":
            return f"it takes at most {largest}"
        case "nr_requests":
            return f"the kernel leaves it at {got}: without a scheduler, the driver's own limit holds"
        case "io_poll":
            return "its driver has no queues to poll, such as nvme.poll_queues makes"
        case _:
            return f"the kernel leaves it at {in_use(got)}"


async def scheduler_facts(node: Node, disk: Disk, queue: Queue) -> dict[str, Any]:
    """The parameters of a scheduler that a study asks for, as they are."""
    names = IOSCHED.get(queue.scheduler or "", ())
    said = zip(names, await node.texts(*(f"{queue_of(disk)}/iosched/{name}" for name in names)), strict=True)
    return {"iosched": {name: number_or_text(value) for name, value in said if value is not None}} if names else {}


async def put(node: Node, folder: str, values: Mapping[str, str], read: Sequence[str] = ()) -> list[str]:
    """Write to files of a folder of sysfs, and then ``read`` what these say, without white space around it.

    Whether it took is for who reads it back: what can't be written is left as it is. Raises ``FileNotFoundError`` or
    ``NodeError`` where something can't be read.
    """
    writes = [steps.write(f"{folder}/{file}", f"{value}\n") for file, value in values.items()]
    done = await node.carry_out(*writes, *(steps.read(f"{folder}/{file}") for file in read), go_on=True)
    return [each.check(node.name).text for each in done[len(writes) :]]


async def as_new(node: Node, disk: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Give the queue of a loop device, which keeps what somebody wrote to it from one file to the next, the state that
    the kernel gives to a new one. Its bytes, and what did not take: file → (wanted, found).
    """
    folder = queue_folder(disk)
    names = (*TUNED, "max_hw_sectors_kb", "discard_max_hw_bytes", "optimal_io_size")
    paths = (f"{sysfs(disk)}/size", _DEPTH, "/proc/sys/kernel/osrelease", *(f"{folder}/{name}" for name in names))
    differs: dict[str, str] = {}
    for _ in range(_TRIES):
        await put(node, folder, differs)
        size, depth, release, *values = await node.texts(*paths)
        said = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        wanted = new_state(said, release or "", depth or _DEFAULT_DEPTH)
        differs = {name: value for name, value in wanted.items() if in_use(said[name]) != value}
        if not differs:
            break
    return int(size or 0) * _SECTOR, {name: (value, in_use(said[name])) for name, value in differs.items()}


def new_state(said: Mapping[str, str], release: str, depth: str) -> dict[str, str]:
    """What the files of a loop device's queue say when it is new (``loop_add`` and ``loop_update_limits`` in
    drivers/block/loop.c), in the order in which they are to be set; those that the kernel lacks are left out.

    ``said``: what they say now, with limits that nobody can set. ``release``: of the kernel.
    """
    largest, best = said.get("max_hw_sectors_kb", ""), said.get("optimal_io_size", "0")
    ahead = 2 * int(best) // 1024 if is_whole(best) else 0
    if best == "0" and said.get("rotational") == "1" and _version(release) >= _ROTATING and is_whole(largest):
        ahead = 2 * int(largest)
    new = {
        "scheduler": "none",
        "nr_requests": depth,
        "max_sectors_kb": largest,
        "write_cache": "write back",
        "discard_max_bytes": said.get("discard_max_hw_bytes", ""),
        "wbt_lat_usec": "2000",
        "rq_affinity": "1",
        "nomerges": "0",
        "iostats": "1",
        "add_random": "0",
        "read_ahead_kb": str(max(ahead, _DEFAULT_READ_AHEAD)),
    }
    return {name: new[name] for name in TUNED if said.get(name) and new.get(name)}


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdecimal())
