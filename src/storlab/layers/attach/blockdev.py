"""How QEMU opens a resource: cache mode, asynchronous I/O, and the JSON of its ``-blockdev``, see qemu(1).

The cache modes are those of the ``cache.*`` table of qemu(1). Which of them makes a guest's flush durable is the
commonest hidden difference between two disks:

| mode | O_DIRECT | guest sees a write cache | the guest's flushes |
| --- | --- | --- | --- |
| none | yes | yes | reach the storage |
| writeback | no | yes | reach the storage |
| writethrough | no | no | after every write |
| directsync | yes | no | after every write |
| unsafe | no | yes | are ignored |
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.files import remove_file
from storlab.layers.resources import Disk, Export, File, LoggedFile, Resource
from storlab.nodes.needs import Needs

Cache = Literal["none", "writeback", "writethrough", "directsync", "unsafe"]
Aio = Literal["threads", "native", "io_uring"]
Json = dict[str, Any]

CACHE_HELP = (
    "`none`: past the page cache. `writeback`: through it; both pass flushes on. `writethrough` and `directsync`: the "
    "same two, with a flush after every write and no write cache for the guest. `unsafe`: flushes are ignored."
)
AIO_HELP = "`threads`: a pool of threads. `native`: Linux AIO, which needs cache none or directsync. `io_uring`."


def is_direct(cache: Cache) -> bool:
    return cache in ("none", "directsync")


def has_write_cache(cache: Cache) -> bool:
    return cache not in ("writethrough", "directsync")


def check_aio(cache: Cache, aio: Aio) -> None:
    """Raise ``ValueError`` for what QEMU refuses."""
    if aio == "native" and not is_direct(cache):
        raise ValueError(
            f'aio = "native" needs cache = "none" or "directsync", not "{cache}": Linux AIO does not work through '
            "the page cache"
        )


def cache_facts(cache: Cache, aio: Aio, discard: bool) -> Json:
    return {
        "cache": cache,
        "direct": is_direct(cache),
        "no_flush": cache == "unsafe",
        "write_cache": has_write_cache(cache),
        "aio": aio,
        "discard": discard,
    }


def blockdev(below: Resource, name: str, cache: Cache, aio: Aio, discard: bool) -> Json:
    """The block node ``name``, as the arguments of ``blockdev-add``."""
    flags = {"cache": {"direct": is_direct(cache), "no-flush": cache == "unsafe"}}
    common: Json = {"discard": "unmap" if discard else "ignore", "detect-zeroes": "off", **flags}
    match below:
        case LoggedFile():
            return _logged(below, name, aio, common)
        case File(format=form, path=path, backing=backing):
            top: Json = {"driver": form, "node-name": name, **common, "file": _file("file", path, aio, common)}
            if backing is not None:
                opened = _file("file", backing, aio, flags)
                top["backing"] = {"driver": "raw", "read-only": True, **flags, "file": opened | {"read-only": True}}
            elif form == "qcow2":
                top["backing"] = None  # whatever it says itself
            return top
        case Disk(path=path):
            return {"driver": "raw", "node-name": name, **common, "file": _file("host_device", path, aio, common)}
        case Export(server=server, export=export):
            return {"driver": "nbd", "node-name": name, "server": dict(server), "export": export, **common}
    raise AssertionError(f"QEMU can't open a {below.kind} as a disk")


_UNFLUSHED: Json = {"cache": {"direct": False, "no-flush": True}}


def _logged(file: LoggedFile, name: str, aio: Aio, common: Json) -> Json:
    """A filter above the file that logs what the guest writes and flushes, see block/blklogwrites.c in QEMU's sources.

    A mode that ignores flushes is the filter's own, so that none is logged. Below it none is carried out: no power cut
    befalls this machine, and a flush that takes no time covers in the log just what was completed when it began.
    """
    underlying = common | {"cache": common["cache"] | {"no-flush": True}}
    image = {"driver": "raw", **underlying, "file": _file("file", file.path, aio, underlying)}
    log = _file("file", file.log, "threads", _UNFLUSHED)
    top: Json = {"driver": "blklogwrites", "node-name": name, **common, "file": image, "log": log}
    return top | {"log-super-update-interval": 1}


def _file(driver: str, path: str, aio: Aio, common: Json) -> Json:
    return {"driver": driver, "filename": path, "aio": aio, **common}


# Layer ``write-log``: what is written to the disk above is logged. Crash checks put it there, no study.


class WriteLogLayer(Layer[File, LoggedFile]):
    """Lets QEMU log all writes and flushes of a guest's disk, in a file beside the image, with a copy of its start."""

    layer: Literal["write-log"] = "write-log"

    undoes: ClassVar = (remove_file,)

    def needs(self) -> Needs:
        return Needs(programs=("truncate", "cp"))

    def check_above(self, below: Layer | None) -> str | None:
        if below is not None and below.file_format() != "raw":
            return f"the image is a {below.file_format()} file, and what is logged can be put back onto a raw one only"
        return None

    async def set_up(self, below: File, context: LayerContext) -> LoggedFile:
        assert below.backing is None
        log, start = context.path("write.log"), context.path("start.img")
        for path in (log, start):
            await context.register_undo("file.remove", path=path)
        await context.node.run(["truncate", "--size", "0", log])
        await context.node.run(["cp", "--reflink=auto", "--sparse=always", "--", below.path, start])
        return LoggedFile(below.node, below.path, below.size, log=log, start=start)

    async def facts(self, resource: LoggedFile, context: LayerContext) -> dict[str, Any]:
        return {"log": resource.log}
