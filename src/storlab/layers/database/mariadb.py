"""Layer ``mariadb``: a MariaDB server with InnoDB. See https://mariadb.com/kb/en/innodb-system-variables/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from storlab.layers.database.innodb import InnodbLayer
from storlab.layers.server.base import ServerContext
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

    def own_lines(self, server: ServerContext) -> Mapping[str, str]:
        return {}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.executable(), f"--defaults-file={server.folder}/my.cnf"]
