"""What all databases have in common: the data set that each starts from, settings, and reading them back."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator

from storlab.base.allowed import NotAllowed, allowed, together
from storlab.base.errors import CommandFailed, TrialError, Unsupported, UserError
from storlab.base.reach import Program, options_of
from storlab.base.units import Size, size_text
from storlab.images.cache import Part
from storlab.layers.base import Layer, LayerContext
from storlab.layers.database.data_set import (
    DATABASE,
    DataSet,
    Recipe,
    clone_dataset,
    data_sets,
    pack,
    share_extents,
    sql,
    unpack,
    version_in,
)
from storlab.layers.resources import Dir, Server
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.layers.zfs.datasets import ZfsLayer, destroy_dataset
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs, numactl_programs
from storlab.nodes.node import Node
from storlab.nodes.privileges import confinement

Clone = Literal["copy", "reflink", "zfs"]
_FULL = os.strerror(errno.ENOSPC)
_UNPACKED = 100e6  # bytes of a data set a second, as an estimate

# PostgreSQL names a setting that it refuses in a line of its log, and then says only that there was one.
_ERROR = re.compile(
    r"(?:\[ERROR\] (?:\[\S+\] ){0,2}(?!Aborting|\[)|\b(?:FATAL|ERROR|PANIC):|LOG:(?=.* (?:parameter|setting) ))\s*(.+)"
)
_FOLLOWS = re.compile(
    r"configuration file .* contains errors$|Plugin 'InnoDB' |InnoDB: Plugin initiali|"
    r"Unknown/unsupported storage engine"
)
"""What is said because of another error, after it."""


def as_written(value: Any) -> Any:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int | float) else value


SettingName = Annotated[str, options_of("the server"), StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
# No blank, quote or slash: a setting can neither end its line, nor name a file of somebody else's.
SettingValue = Annotated[
    str,
    options_of("the server"),
    BeforeValidator(as_written, json_schema_input_type=str | int | float | bool),
    StringConstraints(pattern=r"^[A-Za-z0-9_.,:=+%-]{1,200}$"),
]
Settings = dict[SettingName, SettingValue]


class DatabaseLayer(ServerLayer[Dir, Server]):
    """A database in the underlying directory, whose data are put there whenever it is set up."""

    data: DataSet | None = Field(
        None,
        description="What it starts with: `{ tables = 4, rows = 50000 }` for sysbench, `{ scale = 10 }` for "
        "pgbench; by default nothing.",
    )
    clone: Clone = Field(
        "copy",
        description="How each trial gets its data: `copy`; `reflink`: sharing extents with a copy in the same file "
        "system, which first writes then break up; `zfs`: a clone of a dataset, above layer `zfs`. The same in "
        "all cells, unless it alone is a factor.",
    )
    pool: Size = Field(128 * 1024**2, ge=8 * 1024**2, description="Memory for its pages.")
    settings: Settings = Field(
        default_factory=dict,
        description="More of its settings, [those that are listed](options.md), as the server names them.",
    )
    bindir: Program | None = Field(
        None, pattern=r"^/[^\x00]+$", max_length=4095, description="The directory of your own build's programs."
    )

    _recovers: bool = PrivateAttr(False)

    compared: ClassVar = ("*",)
    undoes: ClassVar = (*ServerLayer.undoes, destroy_dataset)
    own_user: ClassVar = True
    dialect: ClassVar[str]
    start_patience: ClassVar = 300.0  # it may have to recover first
    stop_patience: ClassVar = 120.0  # it writes back what its pool holds
    like: ClassVar[tuple[str, ...]] = ()
    """Servers whose listed settings it has in addition to its own, see ``allowed/databases.toml``."""
    usual_start: ClassVar[float] = 2.0
    """Seconds to start it and to stop it, as an estimate."""

    @model_validator(mode="after")
    def _settings_that_are_listed(self) -> Self:
        table = together(*(allowed("databases", part) for part in (self.layer, *self.like)))
        if (found := table.first_problem(self.settings.items())) is not None:
            raise NotAllowed(found[1], "settings", found[0])
        return self

    def start_time(self) -> float:
        return self.usual_start + (0 if self.data is None else self.data.bytes()) / _UNPACKED

    def executable(self) -> str:
        return self.located(self.program)

    def located(self, program: str) -> str:
        return program if self.bindir is None else f"{self.bindir}/{program}"

    def looked_for(self) -> tuple[str, ...]:
        """Programs of the server's that a node must have, where no ``bindir`` says where they are."""
        return (self.program,)

    def needs(self) -> Needs:
        own = (self.executable(),) if self.bindir is not None else ()
        programs = () if self.bindir is not None else self.looked_for()
        tool = () if self.data is None else (self.data.tool,)
        return Needs(programs=(*programs, *tool, *numactl_programs(self.pin, self.numa)), paths=own)

    def check_above(self, below: Layer | None) -> str | None:
        if self.clone != "zfs" or isinstance(below, ZfsLayer):
            return None
        return 'clone = "zfs" takes a dataset right below it: put layer zfs there, or write clone = "copy"'

    async def check_node(self, node: Node) -> None:
        memory = (await node.facts({}))["memory"]["total_bytes"]
        if self.pool > memory:
            raise UserError(
                f"node {node.name}: pool = {size_text(self.pool)} is more than its memory, {size_text(memory)}; "
                "take a smaller one",
                key=("pool",),
            )

    @abstractmethod
    def made_with(self) -> Mapping[str, str]:
        """The settings that its files depend on from the start."""

    @abstractmethod
    def make(self, server: ServerContext) -> tuple[str, ...]:
        """A command that makes its files in ``server.data``, with the data set, and shuts the server down in order."""

    @abstractmethod
    async def settings_of(self, server: Server, node: Node) -> dict[str, str]:
        """What the server says of its settings. Raises ``TrialError`` where one did not take."""

    async def version(self, node: Node) -> str:
        return await version_of(node, self.executable())

    def listens_on_socket(self, server: ServerContext) -> bool:
        return True

    async def answers(self, server: ServerContext) -> bool:
        (socket,) = await server.node.carry_out(steps.look(server.socket), go_on=True)
        if not socket.there:
            return False  # nor is a client to be started to find that out
        return (await server.node.run(sql(self.served(server), "SELECT 1"), check=False)).ok

    async def resource(self, server: ServerContext) -> Server:
        return self.served(server)

    def served(self, server: ServerContext[Dir]) -> Server:
        data = {} if self.data is None else self.data.words()
        port = None if server.host is None else server.port
        where = (server.host, port, server.socket, DATABASE, server.below.disks)
        return Server(server.node.name, self.dialect, *where, data=data)

    @abstractmethod
    def torn_pages(self) -> tuple[int, bool]:
        """Bytes of a page that it writes in place, and whether it can repair one that is torn."""

    def recovering(self) -> Self:
        """The same on the data that a power cut left, in place of a data set."""
        found = self.model_copy()
        found._recovers = True
        return found

    async def make_folders(self, server: ServerContext) -> None:
        assert server.data is not None
        if self._recovers:
            await server.node.carry_out(steps.make_directory(server.folder, self.mode(server, server.folder)))
        else:
            await super().make_folders(server)
        if self._recovers and server.user is not None:  # on the machine where they were made, it had another number
            owner = f"{server.user}:{server.group}"
            await server.node.run(["chown", "--recursive", "--no-dereference", owner, "--", server.data])

    async def prepare(self, server: ServerContext) -> None:
        if self._recovers:
            return
        recipe = Recipe(f"{self.layer} {await self.version(server.node)}", self.made_with(), self.data)
        part = await self._data_set(server, recipe)
        assert server.data is not None
        if self.clone == "copy":
            await unpack(server.confined, part, server.data, server.as_user())
        elif self.clone == "reflink":
            await share_extents(server, part)
        else:
            await clone_dataset(server, part)
            await self.register_stop(server, [])  # it ends before its dataset does
        await server.node.carry_out(steps.sync(server.data))

    async def _data_set(self, server: ServerContext, recipe: Recipe) -> Part:
        """Made in the server's own place where there is none yet: the node may have no room anywhere else."""
        cache, name = data_sets(), recipe.name(server.node)
        part = cache.used(name)
        if part is not None:
            return part
        assert server.data is not None
        async with cache.locked(lambda step: None):
            part = cache.used(name)
            if part is None:
                await self._make(server)
                part = await pack(server.node, server.data, recipe, cache)
                await server.run("find", server.data, "-mindepth", "1", "-delete")
        return part

    async def _make(self, server: ServerContext) -> None:
        try:
            await server.confined.run(
                [*self.launcher(server), *self.make(server)], env={"HOME": server.folder}, cwd=server.folder
            )
        except CommandFailed as error:
            why = self.complaint(error.detail.splitlines())
            what = f"node {server.node.name}: {self.layer} can't make its data"
            raise CommandFailed(f"{what}: {why}", error.detail) from None

    async def facts(self, resource: Server, context: LayerContext) -> dict[str, Any]:
        version, settings = await asyncio.gather(self.version(context.node), self.settings_of(resource, context.node))
        data = "empty" if self.data is None else self.data.words()
        return {"version": version, "data": data, "clone": self.clone, **settings}

    def reason(self, how: str, lines: Sequence[str]) -> str:
        return super().reason(how.rpartition("/")[2], lines)  # without the folder of its program

    def complaint(self, lines: Sequence[str]) -> str:
        """That the disk is full; else the last line that is an error; the last of all where there is none."""
        errors = [found[1] for line in lines if (found := _ERROR.search(line)) is not None]
        telling = [error for error in errors if not _FOLLOWS.match(error)]
        full = [error for error in telling if _FULL in error]  # all else may only follow from that
        return (full or telling)[-1] if telling else super().complaint(lines)


async def version_of(node: Node, *words: str) -> str:
    """What a program prints of itself, asked once; ``words`` start it. Raises ``Unsupported``."""
    key = shlex.join([*words, "--version"])
    if key not in node.known:
        alone = node.confined(confinement(node))  # it may be a program of the study's own
        ended = await alone.run([*words, "--version"], check=False)
        version = version_in(ended.stdout.decode(errors="replace"))
        if version is None:
            raise Unsupported(f"node {node.name}: {words[-1]} does not say its version: {ended.describe()}")
        node.known[key] = version
    return node.known[key]


async def answer_of(node: Node, argv: Sequence[str]) -> str:
    ended = await node.run(argv, check=False)
    if not ended.ok:
        said = ended.stderr.decode(errors="replace").strip()
        raise TrialError(f"node {node.name}: the database gives no answer: {said or ended.describe()}")
    return ended.stdout.decode(errors="replace")
