"""What a database starts from: made once, shut down in order, kept as an archive, and unpacked for every trial.

So all trials start from the same bytes, however long loading takes. An archive that a virtual machine made stays among
virtual machines: what a guest says is in it is a stranger's word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from storlab.base.errors import TooMuch, TrialError, Unsupported
from storlab.base.units import size_text
from storlab.images.cache import About, Cache, Part, remove_tree, storlab_cache
from storlab.layers.resources import Dir, Server
from storlab.layers.server.base import ServerContext
from storlab.model import Model
from storlab.nodes.accounts import hand_over
from storlab.nodes.agent import steps
from storlab.nodes.agent.protocol import CHUNK
from storlab.nodes.node import Node

# How programs reach a database: sysbench, and each database's own client.

DATABASE, USER = "storlab", "storlab"
"""What clients use; nobody but the run reaches the server, so there is no password. It owns the database, and may
neither read or write files of the server's nor run programs.
"""
OWNER = "storlab_owner"
"""Whom all else belongs to in a database. Nobody can be that: not even Storlab, once the data are made."""

_DRIVERS = {"mariadb": "mysql", "mysql": "mysql", "postgresql": "pgsql"}  # of sysbench
DIALECTS = tuple(_DRIVERS)


def sysbench_options(server: Server, user: str = USER) -> list[str]:
    prefix = _DRIVERS[server.dialect]
    options = [f"--db-driver={prefix}", f"--{prefix}-user={user}", f"--{prefix}-db={server.database}"]
    if server.socket is None:
        return [*options, f"--{prefix}-host={server.host}", f"--{prefix}-port={server.port}"]
    if prefix == "mysql":
        return [*options, f"--mysql-socket={server.socket}"]
    folder, port = socket_of_postgres(server.socket)
    return [*options, f"--pgsql-host={folder}", f"--pgsql-port={port}"]


def libpq_options(server: Server, user: str = USER) -> list[str]:
    """By which programs of PostgreSQL find it; the database is for the caller to name."""
    host, port = (server.host, server.port) if server.socket is None else socket_of_postgres(server.socket)
    return [f"--host={host}", f"--port={port}", f"--username={user}"]


def client(server: Server, user: str = USER) -> list[str]:
    """A command that takes statements and prints their rows, columns parted by tabs, without a heading."""
    if server.dialect == "postgresql":
        options = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t"]
        where = [*libpq_options(server, user), f"--dbname={server.database}"]
        return ["psql", *options, "--set=ON_ERROR_STOP=1", *where]
    where = [f"--socket={server.socket}"] if server.socket else [f"--host={server.host}", f"--port={server.port}"]
    options = ["--batch", "--unbuffered", "--skip-column-names", f"--user={user}", *where]
    return ["mariadb", "--no-defaults", *options, f"--database={server.database}"]


def sql(server: Server, statement: str, user: str = USER) -> list[str]:
    return [*client(server, user), "-c" if server.dialect == "postgresql" else "-e", statement]


def socket_of_postgres(path: str) -> tuple[str, int]:
    """Its folder and its port: libpq puts the name together of these."""
    socket = PurePosixPath(path)
    return str(socket.parent), int(socket.suffix.lstrip("."))


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


# How a trial gets a data set without copying it: from a master in the same file system, unpacked once for all trials.
#
# The master lies in what is set up below, and so goes away with it. What a trial gets of it is the trial's own.

_WHOLE = "whole"
"""Of a dataset's snapshot, which is there once all of the data set is."""


async def share_extents(server: ServerContext[Dir], part: Part) -> None:
    """Fill ``server.data`` by reflinks. Raises ``Unsupported`` on file systems that have none."""
    assert server.data is not None
    node, master = server.node, f"{server.below.path}/data-set-{part.name}"
    async with node.lock(master):
        (there,) = await node.carry_out(steps.look(master), go_on=True)
        if there.result.kind != "directory":
            half = f"{master}.half"
            await node.run(["rm", "--recursive", "--force", "--", half])  # of one that was stopped
            await node.carry_out(steps.make_directory(half, 0o700))
            await _fill(server, part, half)
            await node.run(["mv", "--", half, master])
            await node.carry_out(steps.sync(master))
    copied = await server.confined.run(
        [*server.as_user(), "cp", "--archive", "--reflink=always", "--", f"{master}/.", server.data], check=False
    )
    if not copied.ok:
        said = copied.stderr.decode(errors="replace").splitlines()
        why = said[0].rpartition(": ")[2] if said else copied.describe()
        raise Unsupported(f'node {node.name}: this file system does not share extents ({why}): write clone = "copy"')


async def clone_dataset(server: ServerContext[Dir], part: Part) -> None:
    """Mount on ``server.data``, which is empty, a clone of a dataset that holds the data set."""
    assert server.data is not None
    node, context, name = server.node, server.context, f"data-set-{part.name}"
    parent = (await node.output("zfs", "list", "-H", "-o", "name", server.below.path)).strip()
    master, path = f"{parent}/{name}", f"{server.below.path}/{name}"
    async with node.lock(path):
        if not (await node.run(["zfs", "list", "-H", "-o", "name", f"{master}@{_WHOLE}"], check=False)).ok:
            await node.run(["zfs", "destroy", "-r", master], check=False)  # of one that was stopped
            await node.run(["zfs", "create", "-o", f"mountpoint={path}", master])
            await node.run(["chmod", "0700", "--", path])
            await _fill(server, part, path)
            await node.run(["zfs", "snapshot", f"{master}@{_WHOLE}"])
    own = f"{parent}/{context.owner}-{context.position}-data"
    await context.register_undo("zfs.destroy", dataset=own, path=server.data)
    await node.run(["zfs", "clone", "-o", f"mountpoint={server.data}", f"{master}@{_WHOLE}", own])


async def _fill(server: ServerContext[Dir], part: Part, master: str) -> None:
    """Unpack a data set into a folder, which is then the server's user's."""
    node = server.node
    if server.account is not None:
        await hand_over(node, server.account, [master])
    await unpack(node, part, master, server.as_user())
