"""Layer ``mariadb``: a MariaDB server with InnoDB. See https://mariadb.com/kb/en/innodb-system-variables/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from storlab.errors import TrialError
from storlab.layers.database.base import DatabaseLayer, answer_of
from storlab.layers.database.clients import DATABASE, USER, sql
from storlab.layers.database.innodb import difference, refuse_other_sizes
from storlab.layers.resources import Server
from storlab.layers.server.base import ServerContext
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.units import Size

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
sql() { mariadb --no-defaults --socket="$socket" --user=root -e "$1"; }
until sql "SELECT 1" > "$HOME/asked" 2>&1; do
    kill -0 $! 2> /dev/null || { tail -n 20 "$HOME/making" >&2; exit 1; }
    sleep 0.05
done
sql "CREATE DATABASE $database;
    CREATE USER '$user'@'localhost'; GRANT ALL ON *.* TO '$user'@'localhost';
    CREATE USER '$user'@'%'; GRANT ALL ON *.* TO '$user'@'%'"
if test $# -gt 0; then "$@" >> "$HOME/made" 2>&1 || { tail -n 60 "$HOME/made" >&2; exit 1; }; fi
sql "SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN"
wait $!
"""


class MariadbLayer(DatabaseLayer):
    """A MariaDB of the node's, durable unless the study says otherwise."""

    layer: Literal["mariadb"] = "mariadb"
    doublewrite: bool = Field(True, description="Whether pages are written twice, so that a torn one can be repaired.")
    page_size: Annotated[Size, AfterValidator(refuse_other_sizes)] = Field(
        16384, description="Of InnoDB: 4k, 8k, 16k, 32k or 64k."
    )
    log_size: Size = Field(96 * 1024**2, ge=4 * 1024**2, le=512 * 1024**3, description="Of the redo log.")
    flush_method: Literal["fsync", "O_DSYNC", "O_DIRECT", "O_DIRECT_NO_FSYNC"] = Field(
        "O_DIRECT", description="How its data files are opened and flushed."
    )
    flush_at_commit: Literal[0, 1, 2] = Field(
        1, description="The log at a commit: 1 flushed; 2 written, and flushed once a second; 0 neither."
    )

    program: ClassVar = "mariadbd"
    dialect: ClassVar = "mysql"
    first_port: ClassVar = 3306
    users: ClassVar = ("mysql", "nobody")

    def label(self) -> str:
        return "mariadb" if self.doublewrite else "mariadb without doublewrite"

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("mariadb", "mariadb-install-db"))

    def torn_pages(self) -> tuple[int, bool]:
        return self.page_size, self.doublewrite

    def made_with(self) -> Mapping[str, str]:
        return {"innodb_page_size": str(self.page_size), "innodb_log_file_size": str(16 * 1024**2)}

    def make(self, server: ServerContext) -> tuple[str, ...]:
        assert server.data is not None
        made_with = " ".join(f"--{name.replace('_', '-')}={value}" for name, value in self.made_with().items())
        load = [] if self.data is None else self.data.loading(self.served(server))
        script = f"made_with='{made_with}' database={DATABASE} user={USER}\n{_MAKE}"
        programs = (self.executable(), self.located("mariadb-install-db"))
        return ("sh", "-c", script, "sh", server.data, server.socket, *programs, *load)

    def wanted(self) -> dict[str, str]:
        """Its settings, by the server's names."""
        return {
            "innodb_doublewrite": "ON" if self.doublewrite else "OFF",
            "innodb_page_size": str(self.page_size),
            "innodb_buffer_pool_size": str(self.pool),
            "innodb_log_file_size": str(self.log_size),
            "innodb_flush_method": self.flush_method,
            "innodb_flush_log_at_trx_commit": str(self.flush_at_commit),
            "innodb_buffer_pool_dump_at_shutdown": "OFF",  # every trial finds the same pool: none
            "innodb_buffer_pool_load_at_startup": "OFF",
            "max_connections": "2000",
            "skip_name_resolve": "ON",
            **self.settings,
        }

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        lines = {
            "datadir": server.data,
            "socket": server.socket,
            "pid_file": f"{server.folder}/pid",
            "tmpdir": server.folder,
        }
        if server.host is None:  # its node is in no network of the run's
            lines["skip_networking"] = "ON"
        else:
            lines |= {"bind_address": server.host, "port": str(server.port)}
        every = {**lines, **self.wanted()}
        return {"my.cnf": "[mariadbd]\n" + "".join(f"{name} = {value}\n" for name, value in every.items())}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.executable(), f"--defaults-file={server.folder}/my.cnf"]

    async def settings_of(self, server: Server, node: Node) -> dict[str, str]:
        text = await answer_of(node, sql(server, "SHOW GLOBAL VARIABLES"))
        said = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
        wanted = self.wanted()
        for name, value in wanted.items():
            if (wrong := difference(value, said.get(name))) is not None:
                raise TrialError(
                    f"node {node.name}: {self.layer}: {name} should be {value}, but the server has {wrong}"
                )
        return {name: said[name] for name in wanted}
