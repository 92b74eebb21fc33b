"""What servers with InnoDB have in common: MariaDB and MySQL. Their settings, and whether each did take."""

from __future__ import annotations

import re
import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from storlab.base.errors import TrialError, Unsupported
from storlab.base.text import is_whole
from storlab.base.units import Size, size_text
from storlab.images.unpacked import MYSQL
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import queue_folder
from storlab.layers.database.base import DatabaseLayer, answer_of, version_of
from storlab.layers.database.data_set import DATABASE, OWNER, USER, sql
from storlab.layers.resources import Dir, Server
from storlab.layers.server.base import ServerContext
from storlab.nodes.needs import UNPACKED_MYSQL, Needs
from storlab.nodes.node import Confinement, Node

_SIZE = re.compile(r"(\d{1,15})([KMGT]?)", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WORDS = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}
# Of a server that was started in the background for its data to be loaded.
_LOAD = """
sql() { mariadb --no-defaults --socket="$socket" --user=root --skip-column-names --batch -e "$1"; }
until sql "SELECT 1" > "$HOME/asked" 2>&1; do
    kill -0 $! 2> /dev/null || { tail -n 20 "$HOME/making" >&2; exit 1; }
    sleep 0.05
done
sql "CREATE DATABASE $database; CREATE DATABASE $owner;
    CREATE USER '$owner'@'localhost' ACCOUNT LOCK;
    GRANT $sets ON *.* TO '$owner'@'localhost'; GRANT EXECUTE ON $owner.* TO '$owner'@'localhost';
    CREATE DEFINER = '$owner'@'localhost' PROCEDURE $owner.allow_dirty(most DOUBLE, low DOUBLE)
    SET GLOBAL innodb_max_dirty_pages_pct = most, GLOBAL innodb_max_dirty_pages_pct_lwm = low"
for host in localhost %; do
    sql "CREATE USER '$user'@'$host'; GRANT ALL ON $database.* TO '$user'@'$host';
        GRANT PROCESS ON *.* TO '$user'@'$host'; GRANT EXECUTE ON PROCEDURE $owner.allow_dirty TO '$user'@'$host'"
done
if test $# -gt 0; then "$@" >> "$HOME/made" 2>&1 || { tail -n 60 "$HOME/made" >&2; exit 1; }; fi
others=$(sql "SELECT GROUP_CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE User NOT IN
    ('$user', '$owner', 'mariadb.sys', 'mysql.sys', 'mysql.session', 'mysql.infoschema')")
sql "SET GLOBAL innodb_fast_shutdown = 0; DROP USER $others; SHUTDOWN"  # nobody is left who may do that
wait $!
"""
PAGE_SIZES = tuple(2**power * 1024 for power in (2, 3, 4, 5, 6))


def refuse_other_sizes(size: int) -> int:
    if size not in PAGE_SIZES:
        raise ValueError("InnoDB has pages of 4k, 8k, 16k, 32k and 64k")
    return size


def difference(wanted: str, said: str | None) -> str | None:
    """What the server has in place of what was wanted; ``None`` where it is the same, in whatever spelling."""
    if said is None:
        return "no such setting"
    return None if _plain(wanted) == _plain(said) else said


def _plain(value: str) -> str | float:
    word = _WORDS.get(value.lower(), value)
    if (size := _SIZE.fullmatch(word)) is not None:
        return float(int(size[1]) * 1024 ** _POWERS[size[2].lower()])
    try:
        return float(word)
    except ValueError:
        return word.lower()


async def require_atomic(node: Node, disks: Sequence[str], page: int) -> None:
    """Raise ``Unsupported`` unless each of ``disks`` says that it writes ``page`` bytes whole or not at all, as Linux
    has it since 6.11 (``queue/atomic_write_unit_*_bytes``).
    """
    said = f'node {node.name}: doublewrite = "atomic" takes a disk that writes {size_text(page)} whole or not at all'
    if not disks:
        raise Unsupported(f"{said}, and the disk of this directory is not known")
    names = [f"atomic_write_unit_{end}_bytes" for end in ("min", "max")]
    for disk in disks:
        folders = [queue_folder(disk, partition=partition) for partition in (False, True)]
        found = await node.texts(*(f"{folder}/{name}" for folder in folders for name in names))
        least, most = (own if own is not None else whole for own, whole in zip(found[:2], found[2:], strict=True))
        if least is None or most is None or not (is_whole(least) and is_whole(most)):
            raise Unsupported(f"{said}: Linux says nothing of {disk}; it does from 6.11 on")
        if not int(least) <= page <= int(most):
            which = f"writes of {least} to {most} B" if int(most) else "no writes"
            raise Unsupported(f"{said}: {disk} promises that of {which}")


class InnodbLayer(DatabaseLayer):
    """A server with InnoDB, durable unless the study says otherwise."""

    doublewrite: bool | Literal["atomic"] = Field(
        True,
        description="Whether pages are written twice, so that a torn one can be repaired. `atomic`: once, on a disk "
        "that says it writes a page whole or not at all; on any other it is unsupported.",
    )
    page_size: Annotated[Size, AfterValidator(refuse_other_sizes)] = Field(
        16384, description="Page size of InnoDB: 4k, 8k, 16k, 32k or 64k."
    )
    flush_method: Literal["fsync", "O_DSYNC", "O_DIRECT", "O_DIRECT_NO_FSYNC"] = Field(
        "O_DIRECT", description="How its data files are opened and flushed."
    )
    flush_at_commit: Literal[0, 1, 2] = Field(
        1, description="The log at a commit: 1 flushed; 2 written, and flushed once a second; 0 neither."
    )

    first_port: ClassVar = 3306
    like: ClassVar = ("innodb",)
    sets_globals: ClassVar[str]
    """The privilege by which global variables are set. Clients don't have it, but may call what does that for them."""
    section: ClassVar[str]
    """Of its configuration."""

    def label(self) -> str:
        said = {True: "", False: " without doublewrite", "atomic": " on atomic writes"}
        return f"{self.layer}{said[self.doublewrite]}"

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("mariadb",))  # the client of both

    async def set_up(self, below: Dir, context: LayerContext) -> Server:
        if self.doublewrite == "atomic":
            await require_atomic(context.node, below.disks, self.page_size)
        return await super().set_up(below, context)

    def torn_pages(self) -> tuple[int, bool]:
        return self.page_size, self.doublewrite is True

    @abstractmethod
    def own_settings(self) -> Mapping[str, str]:
        """Settings that the other server has not, or by another name."""

    def own_lines(self, server: ServerContext) -> Mapping[str, str]:
        """Of its configuration: what is where, and what is no setting that can be read back."""
        return {}

    def wanted(self) -> dict[str, str]:
        return {
            "max_connections": "2000",
            **self.settings,
            "innodb_doublewrite": "ON" if self.doublewrite is True else "OFF",
            "innodb_page_size": str(self.page_size),
            "innodb_buffer_pool_size": str(self.pool),
            "innodb_flush_method": self.flush_method,
            "innodb_flush_log_at_trx_commit": str(self.flush_at_commit),
            "innodb_buffer_pool_dump_at_shutdown": "OFF",  # every trial finds the same pool: none
            "innodb_buffer_pool_load_at_startup": "OFF",
            "skip_name_resolve": "ON",
            **self.own_settings(),
        }

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        lines = {
            "datadir": server.data,
            "socket": server.socket,
            "pid_file": f"{server.folder}/pid",
            "tmpdir": server.folder,
            **self.own_lines(server),
        }
        if server.host is None:  # its node is in no network of the run's
            lines["skip_networking"] = "ON"
        else:
            lines |= {"bind_address": server.host, "port": str(server.port)}
        every = {**self.wanted(), **lines}  # of a name that is there twice, the last counts
        return {"my.cnf": f"[{self.section}]\n" + "".join(f"{name} = {value}\n" for name, value in every.items())}

    def making(self, server: ServerContext, script: str, *programs: str) -> tuple[str, ...]:
        """``script`` initialises its files and starts it in the background; then its data are loaded, and it ends."""
        assert server.data is not None
        made_with = " ".join(f"--{name.replace('_', '-')}={value}" for name, value in self.made_with().items())
        load = [] if self.data is None else self.data.loading(self.served(server))
        given = f"made_with='{made_with}' database={DATABASE} user={USER} owner={OWNER} sets='{self.sets_globals}'\n"
        return ("sh", "-c", given + script + _LOAD, "sh", server.data, server.socket, *programs, *load)

    async def settings_of(self, server: Server, node: Node) -> dict[str, str]:
        text = await answer_of(node, sql(server, "SHOW GLOBAL VARIABLES"))
        said = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
        wanted = self.wanted()
        for name, value in wanted.items():
            if (wrong := difference(value, said.get(name))) is not None:
                raise TrialError(
                    f"node {node.name}: {self.layer}: {name} should be {value}, but the server has {wrong}"
                )
        return {name: said[name] for name in (*wanted, "log_bin")}  # which neither has, unless it is asked for


# Layer ``mariadb``: a MariaDB server with InnoDB. See https://mariadb.com/kb/en/innodb-system-variables/.

# All as the server's user: install, start without any safety, load, and shut down so that nothing is left to purge.
_MAKE = """
set -e
data=$1 socket=$2 server=$3 install=$4; shift 4
export TMPDIR="$HOME"  # a server that starts removes temporary tables in /tmp, those of others, too
"$install" --no-defaults --datadir="$data" --tmpdir="$HOME" --auth-root-authentication-method=normal \
    --skip-test-db $made_with > "$HOME/made" 2>&1 || { tail -n 60 "$HOME/made" >&2; exit 1; }
"$server" --no-defaults --datadir="$data" --tmpdir="$HOME" --socket="$socket" --pid-file="$HOME/making.pid" \
    --skip-networking $made_with --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=OFF \
    --innodb-buffer-pool-size=256M --innodb-buffer-pool-dump-at-shutdown=OFF > "$HOME/making" 2>&1 &
"""


class MariadbLayer(InnodbLayer):
    """A MariaDB server on the node, durable unless the study says otherwise."""

    layer: Literal["mariadb"] = "mariadb"
    log_size: Size = Field(96 * 1024**2, ge=4 * 1024**2, le=512 * 1024**3, description="Size of the redo log.")

    program: ClassVar = "mariadbd"
    dialect: ClassVar = "mariadb"
    section: ClassVar = "mariadbd"
    sets_globals: ClassVar = "SUPER"

    def looked_for(self) -> tuple[str, ...]:
        return (self.program, "mariadb-install-db")

    def made_with(self) -> Mapping[str, str]:
        return {"innodb_page_size": str(self.page_size), "innodb_log_file_size": str(16 * 1024**2)}

    def make(self, server: ServerContext) -> tuple[str, ...]:
        return self.making(server, _MAKE, self.executable(), self.located("mariadb-install-db"))

    def own_settings(self) -> Mapping[str, str]:
        return {"innodb_log_file_size": str(self.log_size)}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.executable(), f"--defaults-file={server.folder}/my.cnf"]


# Layer ``mysql``: a MySQL server. See https://dev.mysql.com/doc/refman/9.7/en/innodb-parameters.html.
#
# No stable Debian has one, so sid's is unpacked on the machine that runs Storlab, and runs by its own loader.

_MEBIBYTE = 1024**2
_ONE_CHUNK = 1024 * _MEBIBYTE  # up to here there is one pool; MySQL rounds its size up to a multiple of a chunk's

# All as the server's user: initialise, start without any safety, load, and shut down so that nothing is left to purge.
_MYSQL_MAKE = """
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
        return self.making(server, _MYSQL_MAKE, self._starter(server))

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
