"""What servers with InnoDB have in common: MariaDB and MySQL. Their settings, and whether each did take."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from storlab.errors import TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import queue_folder
from storlab.layers.database.base import DatabaseLayer, answer_of
from storlab.layers.database.clients import DATABASE, OWNER, USER, sql
from storlab.layers.resources import Dir, Server
from storlab.layers.server.base import ServerContext
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.text import is_whole
from storlab.units import Size, size_text

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


async def require_atomic(node: Node, disk: str | None, page: int) -> None:
    """Raise ``Unsupported`` unless ``disk`` says that it writes ``page`` bytes whole or not at all, as Linux has it
    since 6.11 (``queue/atomic_write_unit_*_bytes``).
    """
    said = f'node {node.name}: doublewrite = "atomic" takes a disk that writes {size_text(page)} whole or not at all'
    if disk is None:
        raise Unsupported(f"{said}, and the disk of this directory is not known")
    names = [f"atomic_write_unit_{end}_bytes" for end in ("min", "max")]
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
            await require_atomic(context.node, below.disk, self.page_size)
        return await super().set_up(below, context)

    def torn_pages(self) -> tuple[int, bool]:
        return self.page_size, self.doublewrite is True

    @abstractmethod
    def own_settings(self) -> Mapping[str, str]:
        """Settings that the other server has not, or by another name."""

    @abstractmethod
    def own_lines(self, server: ServerContext) -> Mapping[str, str]:
        """Of its configuration: what is where, and what is no setting that can be read back."""

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
