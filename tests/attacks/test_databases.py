"""What statements of a study may try by way of a database: run programs, read and write files, become somebody else."""

from __future__ import annotations

import asyncio
import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from attacks.test_study_author import program
from laboratory import Laboratory
from laboratory.databases import laboratory_of_databases
from laboratory.samples import sample
from layers.database import with_mysql
from layers.database.test_databases import SERVERS, asked, site, started
from layers.sites import Ground, entered
from storlab.base.errors import CommandFailed, TrialError
from storlab.layers.database.data_set import OWNER, sql
from storlab.layers.database.postgresql import PostgresqlLayer
from storlab.layers.server.base import ServerContext

INNODB = SERVERS[:2]
RUNS = str(Path(__file__).parents[1] / "run" / "test_databases.py")
"""Beside which the studies of databases lie."""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner) -> Iterator[Ground]:
    with_mysql(tmp_path / "cache", monkeypatch)
    with entered(runner, site()) as ground:
        yield ground


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


def first_process(ground: Ground) -> Path:
    """Of the only server, in /proc."""
    (process,) = ground.node.named.values()
    return Path(f"/proc/{process.pid}")


def status(process: Path) -> Mapping[str, str]:
    lines = (process / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.needs("root")
@pytest.mark.parametrize("layer", SERVERS)
async def test_a_server_is_a_user_that_nobody_else_is_without_any_privilege(ground: Ground, layer: str) -> None:
    await started(ground, layer)
    found = status(first_process(ground))
    users, groups = {*found["Uid"].split()}, {*found["Gid"].split()}
    assert users == groups and len(users) == 1 and found["Groups"] == ""
    with pytest.raises(KeyError):
        pwd.getpwuid(int(users.pop()))
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == int(found["CapAmb"], 16) == 0
    assert found["NoNewPrivs"] == "1"


@pytest.mark.parametrize("layer", SERVERS)
async def test_a_server_sees_nothing_that_it_could_write_to_but_its_own(ground: Ground, layer: str) -> None:
    await started(ground, layer)
    process = first_process(ground)
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    writable = {mount[4] for mount in mounts if "rw" in mount[5].split(",")}
    own = (ground.scratch, "/tmp/storlab-", "/dev/")
    assert writable and not [path for path in writable if not path.startswith(own)], writable


async def test_postgresql_takes_no_statement_that_runs_a_program_or_opens_a_file(
    ground: Ground, tmp_path: Path
) -> None:
    server, _ = await started(ground, "postgresql")
    outside = tmp_path / "outside"
    tmp_path.chmod(0o777)
    for statement in (
        f"COPY (SELECT 1) TO PROGRAM 'touch {outside}'",
        f"COPY pg_class FROM PROGRAM 'touch {outside}; echo'",
        f"COPY (SELECT 1) TO '{outside}'",
        f"SELECT lo_export(lo_from_bytea(0, 'x'), '{outside}')",
        "SELECT pg_read_file('/etc/hostname')",
        "CREATE TABLE read (line text); COPY read FROM '/etc/hostname'",
        f"ALTER SYSTEM SET archive_command = 'touch {outside}'",
        "CREATE FUNCTION run() RETURNS int LANGUAGE c AS '/lib/x86_64-linux-gnu/libc.so.6', 'abort'",
        f"SET ROLE {OWNER}",
        "GRANT pg_execute_server_program TO storlab",
        "CREATE ROLE other SUPERUSER",
    ):
        with pytest.raises(CommandFailed) as failed:
            await asked(ground, server, statement)
        assert re.search("must be superuser|permission denied|must have admin option", failed.value.detail), statement
    for user in (OWNER, "postgres", "root"):
        assert not (await ground.node.run(sql(server, "SELECT 1", user), check=False)).ok, user
    assert not outside.exists()


@pytest.mark.parametrize("layer", INNODB)
async def test_innodb_opens_no_file_of_a_statement_s_and_lets_in_nobody_who_may(
    layer: str, ground: Ground, tmp_path: Path
) -> None:
    server, _ = await started(ground, layer, {"data": {"tables": 1, "rows": 10}})
    outside = tmp_path / "outside"
    tmp_path.chmod(0o777)
    for statement in (
        f"SELECT 'x' INTO OUTFILE '{outside}'",
        f"SELECT 'x' INTO DUMPFILE '{outside}'",
        "LOAD DATA INFILE '/etc/hostname' INTO TABLE sbtest1 (pad)",
        f"SET GLOBAL general_log_file = '{outside}', GLOBAL general_log = 1",
        "INSTALL PLUGIN x SONAME 'x.so'",
        "CREATE FUNCTION run RETURNS INTEGER SONAME 'x.so'",
        "GRANT FILE ON *.* TO CURRENT_USER()",
        "CREATE USER other",
        "SHUTDOWN",
    ):
        with pytest.raises(CommandFailed, match=r"denied"):
            await asked(ground, server, statement)
    assert await asked(ground, server, "SELECT LOAD_FILE('/etc/hostname')") == "NULL"
    for user in ("root", OWNER, "mysql", ""):
        assert not (await ground.node.run(sql(server, "SELECT 1", user), check=False)).ok, user
    assert not outside.exists()


@pytest.mark.needs("root")
async def test_not_even_its_superuser_gets_out_of_what_confines_postgresql(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom a hole in the server would make of a client: let in here for once."""
    configuration = PostgresqlLayer.configuration

    def letting_all_in(layer: PostgresqlLayer, server: ServerContext) -> Mapping[str, str]:
        return {**configuration(layer, server), "pg_hba.conf": "local all all trust\n"}

    monkeypatch.setattr(PostgresqlLayer, "configuration", letting_all_in)
    server, _ = await started(ground, "postgresql")
    tmp_path.chmod(0o777)
    outside = tmp_path / "outside"
    sockets = str(server.socket).rpartition("/")[0]
    for statement in (
        f"COPY (SELECT 1) TO '{outside}'",
        f"COPY (SELECT 1) TO PROGRAM 'touch {outside}'",
        "COPY (SELECT 1) TO PROGRAM 'echo x > /var/tmp/storlab-attack'",
        f"COPY (SELECT 1) TO PROGRAM 'mount --bind / {sockets}'",
        f"COPY (SELECT 1) TO PROGRAM 'kill {ground.node.pid}'",
    ):
        with pytest.raises(CommandFailed):
            await ground.node.output(*sql(server, statement, OWNER))
    inside = f"{sockets}/inside"
    await ground.node.output(*sql(server, f"COPY (SELECT 1) TO PROGRAM 'touch {inside}'", OWNER))
    assert Path(inside).exists(), "a program does run"
    assert not outside.exists() and not Path("/var/tmp/storlab-attack").exists()


def test_a_script_that_has_the_server_run_a_program_fails_the_trial(lab: Laboratory) -> None:
    outside = lab.folder / "open" / "outside"
    outside.parent.mkdir(mode=0o777)
    outside.parent.chmod(0o777)
    (lab.folder / "own.sql").write_text(f"COPY (SELECT 'x') TO PROGRAM 'id > {outside}';\n")
    words: dict[str, Any] = {"layer": "postgresql", "data": "scale = 1", "load": "pgbench"}
    ran = lab.run(sample(RUNS, "cases/database-load.toml", **words, more=', script = "own.sql"'))
    (record,) = lab.records()
    assert (ran.status, record.status) == (3, "failed"), ran
    assert "pg_execute_server_program" in f"{record.reason}{record.detail}"
    assert not outside.exists()
    assert lab.leftovers() == []


@pytest.mark.parametrize("layer", ["postgresql", "mariadb", "mysql"])
async def test_a_server_of_the_studys_own_writes_nowhere_else_whatever_it_is_started_for(
    layer: str, ground: Ground, tmp_path: Path
) -> None:
    """Nor does it as what is asked for its version."""
    tmp_path.chmod(0o777)
    proof = tmp_path / "proof"
    for name in ("postgres", "initdb", "psql", "mariadbd", "mariadb-install-db", "mysqld"):
        program(tmp_path / "bin" / name, f"touch {proof}; echo 'x Ver 15.1 (of its own)'")
    (tmp_path / "bin").chmod(0o755)
    with pytest.raises(TrialError):
        await started(ground, layer, {"bindir": str(tmp_path / "bin")})
    assert not proof.exists()
