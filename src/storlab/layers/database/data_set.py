"""What a database starts from: made once, shut down in order, kept as an archive, and unpacked for every trial.

So all trials start from the same bytes, however long loading takes. An archive that a virtual machine made stays among
virtual machines: what a guest says is in it is a stranger's word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from storlab.errors import TooMuch, TrialError
from storlab.images.cache import About, Cache, Part, remove_tree, storlab_cache
from storlab.layers.database.clients import libpq_options, sysbench_options
from storlab.layers.resources import Server
from storlab.model import Model
from storlab.nodes.agent.protocol import CHUNK
from storlab.nodes.node import Node
from storlab.units import size_text

ARCHIVE = "data.tar"
MOST_KEPT = 20 * 1024**3  # bytes of all of them together
_RECIPE = 2  # raised when data sets are made in another way
_ROW, _SCALE, _EMPTY = 600, 25_000_000, 500_000_000  # bytes, generously: of sysbench's rows, pgbench's unit, no data
_UNPACK = ("tar", "--extract", "--file=-", "--no-same-owner", "--preserve-permissions")
_PACK = 'exec tar --create --file=- --directory="$1" --sort=name . 2> /dev/null'

Tool = Literal["sysbench", "pgbench"]


class DataSet(Model):
    """What is in a database before anything is measured: the tables of sysbench's ``oltp_*``, or those of pgbench."""

    tables: int | None = Field(None, ge=1, le=10_000, description="Tables of sysbench's `oltp_*` tests.")
    rows: int | None = Field(None, ge=1, le=10**9, description="Rows of each of these tables.")
    scale: int | None = Field(None, ge=1, le=100_000, description="Instead of both: pgbench's, 100,000 accounts each.")
    seed: int = Field(1, ge=1, le=2**31 - 1, description="What sysbench draws its rows by.")

    @model_validator(mode="after")
    def _of_one_tool(self) -> Self:
        of_sysbench = (self.tables is not None) + (self.rows is not None)
        if of_sysbench == 1 or (of_sysbench == 2) == (self.scale is not None):
            raise ValueError(
                "write { tables = 4, rows = 50000 } for the tables of sysbench, or { scale = 10 } for those of pgbench"
            )
        return self

    @property
    def tool(self) -> Tool:
        return "pgbench" if self.scale is not None else "sysbench"

    def loading(self, server: Server) -> list[str]:
        if self.scale is not None:
            options = ["--initialize", "--quiet", f"--scale={self.scale}", *libpq_options(server)]
            return ["pgbench", *options, server.database]
        tables = [f"--tables={self.tables}", f"--table-size={self.rows}", f"--rand-seed={self.seed}"]
        return ["sysbench", "oltp_common", *sysbench_options(server), *tables, "prepare"]

    def bytes(self) -> int:
        return (self.tables or 0) * (self.rows or 0) * _ROW + (self.scale or 0) * _SCALE

    def words(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, exclude={"seed"} if self.scale is not None else set())


@dataclass(frozen=True)
class Recipe:
    """What the bytes of a data set depend on. ``server``: with its version; ``made_with``: settings of its files."""

    server: str
    made_with: Mapping[str, str]
    data: DataSet | None

    def name(self, node: Node) -> str:
        """Of the part of the cache that holds it, for nodes like this one."""
        where = "guest" if node.identity.volatile else f"{node.identity.kind} {node.identity.machine.id}"
        data = None if self.data is None else self.data.words()
        every = [_RECIPE, self.server, sorted(self.made_with.items()), data, where]
        return hashlib.sha256(orjson.dumps(every, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]

    def about(self, node: Node) -> dict[str, str]:
        data = {} if self.data is None else self.data.words()
        where = "guests" if node.identity.volatile else node.identity.kind
        return {
            "server": self.server,
            **self.made_with,
            **{key: str(value) for key, value in data.items()},
            "for": where,
        }

    def most(self) -> int:
        """Bytes that an archive of it may have."""
        return 2 * (_EMPTY + (0 if self.data is None else self.data.bytes()))


def data_sets() -> Cache:
    return Cache(storlab_cache() / "data-sets")


async def pack(node: Node, folder: str, recipe: Recipe, cache: Cache) -> Part:
    """Keep what a node has in ``folder`` as this data set. For who holds the cache's lock. Raises ``TrialError``."""
    name = recipe.name(node)
    used = int((await node.output("du", "--summarize", "--bytes", "--", folder)).split()[0])
    with cache.making(name, min(used * 11 // 10, recipe.most())) as work:
        kept = _Kept(work / ARCHIVE, recipe.most())
        try:
            ended = await (await node.start(["sh", "-c", _PACK, "sh", folder], on_output=kept.take)).wait()
        finally:
            kept.file.close()
        if not ended.ok:
            raise TrialError(f"node {node.name}: {folder} can't be kept as a data set: {ended.describe()}")
        if kept.size > kept.most:
            raise TooMuch(f"node {node.name}: {folder} has more than the {size_text(kept.most)} that a data set may")
        cache.finish(work, About(versions=recipe.about(node)))
    part = cache.finished(name)
    forget_old(cache, keep=name)
    return part


def forget_old(cache: Cache, keep: str, most: int = MOST_KEPT) -> None:
    """Remove those that were wanted longest ago, until all are within ``most`` bytes. For who holds the lock."""
    others = [part for part in cache.parts() if part.name != keep]
    left = most - cache.finished(keep).size
    for part in others:
        left -= part.size
        if left < 0:
            remove_tree(part.folder)


def list_data_sets() -> list[Part]:
    return data_sets().parts()


async def remove_data_set(name: str) -> bool:
    cache = data_sets()
    if name not in {part.name for part in cache.parts()}:
        return False
    async with cache.locked(lambda step: None):
        remove_tree(cache.folder / "parts" / name)
    return True


class _Kept:
    """What a node sends, up to ``most`` bytes; what is beyond is only counted."""

    def __init__(self, path: Path, most: int) -> None:
        self.file, self.most, self.size = path.open("wb"), most, 0

    def take(self, output: bytes, at: float) -> None:
        self.size += len(output)
        if self.size <= self.most:
            self.file.write(output)


async def unpack(node: Node, part: Part, folder: str, as_user: list[str]) -> None:
    argv = [*as_user, *_UNPACK, f"--directory={folder}"]
    archive = part.folder / ARCHIVE
    await node.run(argv, stdin=archive if node.here else _pieces(archive))


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


_VERSION = re.compile(r"(?<=\s)\d+(?:\.\d+)+\S*")  # and not a number in the program's path


def version_in(said: str) -> str | None:
    found = _VERSION.search(said)
    return None if found is None else found[0]
