"""Layer ``postgresql``: a PostgreSQL server. See https://www.postgresql.org/docs/15/runtime-config.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from storlab.base.errors import TrialError
from storlab.base.units import Duration, Size
from storlab.layers.database.base import DatabaseLayer, answer_of, as_written, version_of
from storlab.layers.database.data_set import DATABASE, OWNER, USER, sql
from storlab.layers.resources import Server
from storlab.layers.server.base import ServerContext
from storlab.nodes.needs import Needs, program_path
from storlab.nodes.node import Node

_PAGE = 8192  # bytes, unless it was built for others
_INNODB = {
    "doublewrite": "full_page_writes",
    "page_size": "bindir, for a build with other pages",
    "log_size": "wal_size",
}

# Frozen and written back, so that whoever comes first has nothing to do that those who come later have not.
_MAKE = """
set -e
data=$1 sockets=$2 bin=$3; shift 3
run() { "$@" > "$HOME/making" 2>&1 || { tail -n 20 "$HOME/making" >&2; exit 1; }; }
run "$bin/initdb" --pgdata="$data" --username="$owner" --auth=trust --encoding=UTF8 --locale=C --no-sync
"$bin/postgres" -D "$data" -c listen_addresses= -c unix_socket_directories="$sockets" -c port="$port" -c fsync=off \\
    -c full_page_writes=off -c max_wal_size=4GB -c maintenance_work_mem=128MB -c autovacuum=off > "$HOME/server" 2>&1 &
sql() { "$bin/psql" -X -q -h "$sockets" -p "$port" -U "$owner" -d "$1" -c "$2"; }
until sql postgres "SELECT 1" > "$HOME/asked" 2>&1; do
    kill -0 $! 2> /dev/null || { tail -n 20 "$HOME/server" >&2; exit 1; }
    sleep 0.05
done
run sql postgres "CREATE ROLE $user LOGIN"
run sql postgres "CREATE DATABASE $database OWNER $user"
run sql "$database" "GRANT SELECT ON pg_file_settings TO $user"
run sql "$database" "GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO $user"
run sql "$database" "GRANT pg_read_all_settings TO $user"
try() { sql "$database" "$1" > "$HOME/tried" 2>&1 || true; }
try "GRANT pg_checkpoint TO $user"  # from version 15 on
try "CREATE EXTENSION amcheck; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO $user"  # where that is installed
test $# -eq 0 || run "$@"
run sql "$database" "VACUUM (FREEZE, ANALYZE)"
run sql "$database" CHECKPOINT
kill -INT $!
wait $!
"""


class PostgresqlLayer(DatabaseLayer):
    """A PostgreSQL server on the node, durable unless the study says otherwise."""

    layer: Literal["postgresql"] = "postgresql"
    pool: Size = Field(128 * 1024**2, ge=1024**2, description="Memory for its pages.")
    full_page_writes: bool = Field(
        True, description="Whether a page's first change since a checkpoint logs the whole page, to repair a torn one."
    )
    wal_size: Size = Field(
        1024**3, ge=32 * 1024**2, description="How much log may accumulate before a checkpoint (`max_wal_size`)."
    )
    flush_at_commit: bool = Field(True, description="Whether a commit waits until its log is flushed.")
    flush_method: Literal["fdatasync", "fsync", "open_datasync", "open_sync"] = Field(
        "fdatasync", description="How the log is flushed (`wal_sync_method`)."
    )
    checkpoint_timeout: Duration = Field(
        300.0, ge=30, le=86400, description="The longest between two checkpoints; shorter trials may see none."
    )

    program: ClassVar = "postgres"
    dialect: ClassVar = "postgresql"
    first_port: ClassVar = 5432
    stop_signal: ClassVar = "SIGINT"  # TERM waits until all clients have gone
    socket_name: ClassVar = ".s.PGSQL.{port}"

    @model_validator(mode="before")
    @classmethod
    def _in_its_words(cls, keys: Any) -> Any:
        for name, instead in _INNODB.items():
            if isinstance(keys, dict) and name in keys:
                raise ValueError(f"{name} is InnoDB's; PostgreSQL has {instead}")
        return keys

    def label(self) -> str:
        return "postgresql" if self.full_page_writes else "postgresql without full pages"

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("psql",))

    async def version(self, node: Node) -> str:
        return await version_of(node, f"{await self._bin(node)}/postgres")

    async def _bin(self, node: Node) -> str:
        """The folder of its programs: Debian's lie outside of PATH."""
        if self.bindir is not None:
            return self.bindir
        path = await program_path(node, self.program)
        return "/usr/bin" if path is None else path.rpartition("/")[0]

    def torn_pages(self) -> tuple[int, bool]:
        return _PAGE, self.full_page_writes

    def made_with(self) -> Mapping[str, str]:
        return {"bindir": self.bindir or ""}

    async def prepare(self, server: ServerContext) -> None:
        await server.node.run(["ln", "--symbolic", "--", await self._bin(server.node), f"{server.folder}/bin"])
        await super().prepare(server)
        # What a cut left may name a process that is another's by now, and settings that nobody asked for.
        stale = [f"{server.data}/{name}" for name in ("postmaster.pid", "postgresql.auto.conf")]
        await server.node.run(["rm", "--force", "--", *stale])

    def make(self, server: ServerContext) -> tuple[str, ...]:
        assert server.data is not None
        # It has no port yet where others reach it, and is reached by its socket alone while its data are made.
        alone = replace(server, host=None, socket_name=self.socket_name.replace("{port}", str(self.first_port)))
        load = [] if self.data is None else self.data.loading(self.served(alone))
        sockets = alone.socket.rpartition("/")[0]
        script = f"owner={OWNER} user={USER} database={DATABASE} port={self.first_port}\n{_MAKE}"
        return ("sh", "-c", script, "sh", server.data, sockets, f"{server.folder}/bin", *load)

    def wanted(self) -> dict[str, str]:
        return {
            "max_connections": "1000",
            "min_wal_size": f"{min(self.wal_size, 80 * 1024**2) // 1024}kB",
            **self.settings,
            "full_page_writes": as_written(self.full_page_writes),
            "shared_buffers": f"{self.pool // 1024}kB",
            "max_wal_size": f"{self.wal_size // 1024}kB",
            "synchronous_commit": as_written(self.flush_at_commit),
            "wal_sync_method": self.flush_method,
            "checkpoint_timeout": f"{round(self.checkpoint_timeout)}s",
        }

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        lines = {
            **self.wanted(),
            "listen_addresses": server.host or "",
            "port": str(server.port or self.first_port),
            "unix_socket_directories": server.socket.rpartition("/")[0],
            "hba_file": f"{server.folder}/pg_hba.conf",
            "logging_collector": "off",
            "log_checkpoints": "on",
            # What recovers by itself is another server in mid-trial; on a full disk it does not even stop when asked.
            "restart_after_crash": "off",
        }
        settings = "".join(f"{name} = '{value}'\n" for name, value in lines.items())
        return {"postgresql.conf": settings, "pg_hba.conf": f"local all {USER} trust\nhost all {USER} all trust\n"}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [
            f"{server.folder}/bin/postgres",
            "-D",
            str(server.data),
            f"--config-file={server.folder}/postgresql.conf",
        ]

    async def settings_of(self, server: Server, node: Node) -> dict[str, str]:
        wrong = await answer_of(node, sql(server, "SELECT name, error FROM pg_file_settings WHERE NOT applied"))
        if wrong.strip():
            name, _, error = wrong.splitlines()[0].partition("\t")
            raise TrialError(f"node {node.name}: postgresql: {name} did not take: {error or 'no reason given'}")
        names = ", ".join(f"'{name}'" for name in self.wanted())
        said = await answer_of(
            node, sql(server, f"SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({names})")
        )
        return dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
