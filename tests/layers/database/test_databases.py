"""MariaDB, MySQL and PostgreSQL for real: made once, unpacked for each trial, with the settings that were asked for."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from layers.sites import Ground, ground_in
from storlab.errors import TrialError, Unsupported
from storlab.images.mysql import MYSQL
from storlab.layers.database.clients import sql
from storlab.layers.database.mysql import MysqlLayer
from storlab.layers.resources import Server
from storlab.nodes.needs import remedy

from . import UNPACKED, needs_mysql, with_mysql

SERVERS = ("mariadb", pytest.param("mysql", marks=needs_mysql), "postgresql")
DATA = {"tables": 1, "rows": 200}


def mysql(*arguments: Any) -> Any:
    return pytest.param("mysql", *arguments, marks=needs_mysql)


@asynccontextmanager
async def site() -> AsyncIterator[Ground]:
    """In a folder that the server's user may pass through, whatever becomes of pytest's."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with ground_in(folder) as ground:
            yield ground


async def started(ground: Ground, layer: str, keys: Mapping[str, Any] | None = None) -> tuple[Server, dict[str, Any]]:
    built = await ground.set_up({"layer": "directory"}, {"layer": layer, **(keys or {})})
    assert isinstance(built.resource, Server)
    return built.resource, dict(built.facts[-1])


async def asked(ground: Ground, server: Server, statement: str) -> str:
    return (await ground.node.output(*sql(server, statement))).strip()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with_mysql(tmp_path / "cache", monkeypatch)
    return tmp_path / "cache" / "storlab" / "data-sets" / "parts"


@pytest.mark.parametrize("layer", SERVERS)
def test_every_trial_starts_from_the_same_rows_and_what_one_wrote_is_gone(layer: str, cache: Path) -> None:
    async def main() -> None:
        async with site() as ground:
            server, facts = await started(ground, layer, {"data": DATA})
            assert facts["data"] == {**DATA, "seed": 1} and facts["version"][0].isdecimal()
            before = await asked(ground, server, "SELECT sum(k), count(*) FROM sbtest1")
            assert before.split()[1] == "200"
            await asked(ground, server, "DELETE FROM sbtest1")
            did = await ground.tear_down()
            assert any(each.startswith("stopped") for each in did)
            ground.journal.clear()
            (part,) = cache.iterdir()
            made = (part / "data.tar").stat()
            other = {"full_page_writes" if layer == "postgresql" else "doublewrite": False}
            server, _ = await started(ground, layer, {"data": DATA, **other})
            assert await asked(ground, server, "SELECT sum(k), count(*) FROM sbtest1") == before
            assert (part / "data.tar").stat().st_mtime_ns == made.st_mtime_ns, "it was not made again"

    asyncio.run(main())


@pytest.mark.parametrize("layer", SERVERS[:2])
def test_settings_of_innodb_are_what_the_server_says_they_are(layer: str) -> None:
    async def main() -> None:
        async with site() as ground:
            keys = {"pool": "33M", "log_size": "32M", "page_size": "8k", "doublewrite": False, "flush_at_commit": 2}
            _, facts = await started(ground, layer, {**keys, "settings": {"innodb_io_capacity": 321}})
            assert facts["innodb_doublewrite"] == "OFF" and facts["innodb_io_capacity"] == "321"
            assert facts["innodb_buffer_pool_size"] == str(33 * 1024**2)
            log = {"mariadb": "innodb_log_file_size", "mysql": "innodb_redo_log_capacity"}[layer]
            assert facts[log] == str(32 * 1024**2) and facts["innodb_page_size"] == "8192"
            assert facts["innodb_flush_log_at_trx_commit"] == "2" and facts["log_bin"] == "OFF"

    asyncio.run(main())


def test_settings_of_postgresql_are_what_the_server_says_they_are() -> None:
    async def main() -> None:
        async with site() as ground:
            keys = {"pool": "32M", "full_page_writes": False, "settings": {"random_page_cost": 1.5}}
            _, facts = await started(ground, "postgresql", keys)
            said = {name: facts[name] for name in ("full_page_writes", "shared_buffers", "random_page_cost")}
            assert said == {"full_page_writes": "off", "shared_buffers": "32MB", "random_page_cost": "1.5"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("layer", "settings", "said"),
    [
        (
            "mariadb",
            {"no_such_thing": 1},
            "mariadbd ended with .*: mariadbd: unknown variable 'no_such_thing=1'$",
        ),
        ("mariadb", {"max_allowed_packet": 1000}, "max_allowed_packet should be 1000, but the server has 1024"),
        mysql({"no_such_thing": 1}, "mysqld ended with .*: unknown variable 'no_such_thing=1'"),
        mysql({"max_allowed_packet": 1000}, "max_allowed_packet should be 1000, but the server has 1024"),
        ("postgresql", {"no_such_thing": 1}, 'unrecognized configuration parameter "no_such_thing" in file'),
        (
            "postgresql",
            {"work_mem": "1kB"},
            '1 kB is outside the valid range for parameter "work_mem"',
        ),
    ],
)
def test_a_setting_that_does_not_take_is_named(layer: str, settings: dict[str, Any], said: str) -> None:
    async def main() -> None:
        async with site() as ground:
            with pytest.raises(TrialError, match=said):
                await started(ground, layer, {"settings": settings})

    asyncio.run(main())


@pytest.mark.parametrize("layer", SERVERS)
def test_a_server_that_is_killed_leaves_nothing(layer: str) -> None:
    async def main() -> None:
        async with site() as ground:
            await started(ground, layer)
            (process,) = ground.node.named.values()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            ended = await process.wait()
            assert ended.signal == "SIGKILL"

    before = shared_memory()
    asyncio.run(main())
    assert shared_memory() <= before


def shared_memory() -> set[str]:
    """What PostgreSQL leaves where it is killed."""
    return {each.name for each in Path("/dev/shm").glob("PostgreSQL.*")}


def test_extents_are_shared_or_that_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as ground:
            (tmp_path / "a").write_bytes(b"a" * 4096)
            shares = await ground.node.run(["cp", "--reflink=always", f"{tmp_path}/a", f"{tmp_path}/b"], check=False)
            if shares.ok:
                await started(ground, "mariadb", {"clone": "reflink"})
            else:
                with pytest.raises(Unsupported, match=r'does not share extents .*: write clone = "copy"'):
                    await started(ground, "mariadb", {"clone": "reflink"})

    asyncio.run(main())


def test_a_node_without_mysql_can_not_have_it_and_how_to_get_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    (name,) = set(MysqlLayer().needs().programs) - set(MysqlLayer(bindir="/opt/mysql/bin").needs().programs)
    assert remedy(name) == "storlab image mysql"

    async def main() -> None:
        async with site() as ground:
            with pytest.raises(Unsupported, match="there is no MySQL: `storlab image mysql` unpacks one"):
                await started(ground, "mysql")

    asyncio.run(main())


@pytest.mark.parametrize(("layer", "own"), [mysql("/1-mysql/programs "), ("postgresql", " - tmpfs storlab ")])
def test_a_server_keeps_nothing_in_use_that_another_run_has_mounted(layer: str, own: str, tmp_path: Path) -> None:
    """It has a mount namespace of its own, whose copies would outlive the other run's unmounting."""

    async def mounts_of_the_server() -> str:
        async with site() as ground:
            await started(ground, layer, {"data": {"tables": 1, "rows": 10}})
            (process,) = ground.node.named.values()
            return Path(f"/proc/{process.pid}/mountinfo").read_text()

    other = tmp_path / "storlab-20260101-000000-0000" / "mnt"
    other.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", other], check=True)
    try:
        seen = asyncio.run(mounts_of_the_server())
    finally:
        subprocess.run(["umount", other], check=True)
    assert own in seen and str(other) not in seen


@needs_mysql
def test_a_mysqld_of_one_s_own_is_preferred(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as ground:
            own = Path(ground.scratch).parent / "own-1.2"
            own.mkdir(mode=0o755)
            assert UNPACKED is not None
            shutil.copytree(UNPACKED, own / "lib")
            (own / "lib").chmod(0o755)
            words = shlex.join(MYSQL.words_in(str(own / "lib")))
            (own / "mysqld").write_text(f'#!/bin/sh\nexec {words} "$@" --lc-messages-dir={own}/lib\n')
            (own / "mysqld").chmod(0o755)
            server, _ = await started(ground, "mysql", {"bindir": str(own)})
            assert await asked(ground, server, "SELECT @@lc_messages_dir") == f"{own}/lib/"

    asyncio.run(main())


def test_a_mysqld_that_is_mariadb_s_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mysqld").write_text("#!/bin/sh\necho 'mysqld  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu'\n")
    (tmp_path / "mysqld").chmod(0o755)

    async def main() -> None:
        async with site() as ground:
            with pytest.raises(Unsupported, match=r'mysqld is MariaDB 10.11.14\S*: write layer = "mariadb"'):
                await started(ground, "mysql", {"bindir": str(tmp_path)})

    asyncio.run(main())
