"""How programs reach a database: sysbench, and each database's own client."""

from __future__ import annotations

from pathlib import PurePosixPath

from storlab.layers.resources import Server

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
