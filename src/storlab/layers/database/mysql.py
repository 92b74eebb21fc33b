"""Layer ``mysql``: a MySQL server. See https://dev.mysql.com/doc/refman/9.7/en/innodb-parameters.html.

No stable Debian has one, so sid's is unpacked on the machine that runs Storlab, and runs by its own loader.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from storlab.errors import Unsupported
from storlab.images.unpacked import MYSQL
from storlab.layers.database.base import version_of
from storlab.layers.database.innodb import InnodbLayer
from storlab.layers.server.base import ServerContext
from storlab.nodes.needs import UNPACKED_MYSQL
from storlab.nodes.node import Confinement, Node
from storlab.units import Size

_MEBIBYTE = 1024**2
_ONE_CHUNK = 1024 * _MEBIBYTE  # up to here there is one pool; MySQL rounds its size up to a multiple of a chunk's

# All as the server's user: initialise, start without any safety, load, and shut down so that nothing is left to purge.
_MAKE = """
set -e
data=$1 socket=$2 server=$3; shift 3
export TMPDIR="$HOME"
run() { "$server" --defaults-file="$HOME/making.cnf" --datadir="$data" --tmpdir="$HOME" $made_with "$@"; }
run --initialize-insecure > "$HOME/made" 2>&1 || { tail -n 60 "$HOME/made" >&2; exit 1; }
run --socket="$socket" --pid-file="$HOME/making.pid" --skip-networking --innodb-flush-log-at-trx-commit=0 \
    --innodb-doublewrite=OFF --innodb-buffer-pool-size=256M --innodb-buffer-pool-dump-at-shutdown=OFF \
    > "$HOME/making" 2>&1 &
"""


class MysqlLayer(InnodbLayer):
    """A MySQL server, durable unless the study says otherwise; without its binary log, as MariaDB is by default."""

    layer: Literal["mysql"] = "mysql"
    log_size: Size = Field(
        96 * _MEBIBYTE,
        ge=8 * _MEBIBYTE,
        le=512 * 1024**3,
        description="Size of the redo log (`innodb_redo_log_capacity`).",
    )

    program: ClassVar = "mysqld"
    dialect: ClassVar = "mysql"
    section: ClassVar = "mysqld"
    sets_globals: ClassVar = "SYSTEM_VARIABLES_ADMIN"

    def looked_for(self) -> tuple[str, ...]:
        return (UNPACKED_MYSQL,) if MYSQL.folder is None else ()

    def made_with(self) -> Mapping[str, str]:
        return {"innodb_page_size": str(self.page_size), "innodb_redo_log_capacity": str(16 * _MEBIBYTE)}

    def make(self, server: ServerContext) -> tuple[str, ...]:
        return self.making(server, _MAKE, self._starter(server))

    def own_settings(self) -> Mapping[str, str]:
        return {"innodb_redo_log_capacity": str(self.log_size)}

    def own_lines(self, server: ServerContext) -> Mapping[str, str]:
        lines = {"mysqlx": "OFF", "secure_file_priv": "NULL"}
        if "log_bin" not in self.settings:
            lines["skip_log_bin"] = "ON"
        if self.pool <= _ONE_CHUNK:
            lines["innodb_buffer_pool_chunk_size"] = str(self.pool)
        if self.bindir is None:
            folder = self._programs(server)
            places = {"lc_messages_dir": folder, "character_sets_dir": f"{folder}/charsets"}
            lines |= {"basedir": folder, **places, "plugin_dir": f"{folder}/plugin"}
        return lines

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self._starter(server), f"--defaults-file={server.folder}/my.cnf"]

    async def reach(self, server: ServerContext) -> Confinement:
        found = await super().reach(server)
        assert found is not None, "it has a user of its own"
        if self.bindir is not None or server.user is None:
            return found
        # Its user may not pass through the folders that the cache lies in, so it sees its programs elsewhere.
        return replace(found, shown=(*found.shown, (str(MYSQL.folder), self._programs(server))))

    async def prepare(self, server: ServerContext) -> None:
        await self._words(server.node)  # raises where there is none
        folder = self._programs(server)
        words = (f"{folder}/{self.program}",) if self.bindir is not None else MYSQL.words_in(folder)
        await server.node.run(["mkdir", "--parents", "--", f"{server.folder}/programs"])
        await self.write(server, self.program, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        await server.node.run(["chmod", "0755", "--", self._starter(server)])
        lines = "".join(f"{name} = {value}\n" for name, value in self.own_lines(server).items())
        await self.write(server, "making.cnf", f"[{self.section}]\n{lines}")
        await super().prepare(server)

    async def version(self, node: Node) -> str:
        words = await self._words(node)
        version = await version_of(node, *words)
        if "MariaDB" in version:
            raise Unsupported(f'node {node.name}: {words[-1]} is MariaDB {version}: write layer = "mariadb"')
        return version

    async def _words(self, node: Node) -> tuple[str, ...]:
        words = MYSQL.words if self.bindir is None else (self.executable(),)
        if words is None or not (await node.run(["test", "-x", words[-1]], check=False)).ok:
            raise Unsupported(
                f"node {node.name}: there is no MySQL: `storlab image mysql` unpacks one for the machine that runs "
                "Storlab; for another, name the folder of a mysqld of its own with bindir"
            )
        return words

    def _programs(self, server: ServerContext) -> str:
        if self.bindir is not None:
            return self.bindir
        return str(MYSQL.folder) if server.user is None else f"{server.folder}/programs"

    def _starter(self, server: ServerContext) -> str:
        return f"{server.folder}/{self.program}"
