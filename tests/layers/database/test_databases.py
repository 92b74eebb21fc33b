"""Databases for real: what they start from, with the settings asked for, and what a crash check asks of them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.test_command_line import storlab
from laboratory.devices import sh
from layers.sites import Ground, entered, ground_in
from storlab.base.errors import TrialError, Unsupported
from storlab.images.cache import About, Cache
from storlab.images.unpacked import MYSQL
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.data_set import DataSet, Recipe, forget_old, sql
from storlab.layers.database.innodb import MariadbLayer, MysqlLayer, difference, require_atomic
from storlab.layers.database.postgresql import PostgresqlLayer
from storlab.layers.resources import Dir, Disk, Server
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.nodes.needs import remedy
from storlab.nodes.node import Node
from storlab.registry import layer_types
from storlab.workloads.base import Damage, RunContext
from storlab.workloads.sql_ledger import SqlLedgerWorkload

from . import UNPACKED, with_mysql

SERVERS = ("mariadb", pytest.param("mysql", marks=pytest.mark.needs("mysql")), "postgresql")
DATA = {"tables": 1, "rows": 200}


def mysql(*arguments: Any) -> Any:
    return pytest.param("mysql", *arguments, marks=pytest.mark.needs("mysql"))


@asynccontextmanager
async def site() -> AsyncIterator[Ground]:
    """In a folder that the server's user may pass through, whatever becomes of pytest's."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with ground_in(folder) as ground:
            yield ground


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests: an empty database takes MySQL three seconds, which one of them spends."""
    home = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        with_mysql(home, patch)
    return home


@pytest.fixture
def shared_cache(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(prepared))


@pytest.fixture
def ground(shared_cache: None, runner: asyncio.Runner) -> Iterator[Ground]:
    with entered(runner, site()) as ground:
        yield ground


async def started(ground: Ground, layer: str, keys: Mapping[str, Any] | None = None) -> tuple[Server, dict[str, Any]]:
    built = await ground.set_up({"layer": "directory"}, {"layer": layer, **(keys or {})})
    assert isinstance(built.resource, Server)
    return built.resource, dict(built.facts[-1])


async def asked(ground: Ground, server: Server, statement: str) -> str:
    return (await ground.node.output(*sql(server, statement))).strip()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one test alone."""
    with_mysql(tmp_path / "cache", monkeypatch)
    return tmp_path / "cache" / "storlab" / "data-sets" / "parts"


@pytest.mark.parametrize("layer", SERVERS)
async def test_every_trial_starts_from_the_same_rows_whatever_one_wrote(
    ground: Ground, layer: str, cache: Path
) -> None:
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


@pytest.mark.parametrize("layer", SERVERS[:2])
async def test_settings_of_innodb_are_what_the_server_says_they_are(ground: Ground, layer: str) -> None:
    keys = {"pool": "33M", "log_size": "32M", "page_size": "8k", "doublewrite": False, "flush_at_commit": 2}
    _, facts = await started(ground, layer, {**keys, "settings": {"innodb_io_capacity": 321}})
    assert facts["innodb_doublewrite"] == "OFF" and facts["innodb_io_capacity"] == "321"
    assert facts["innodb_buffer_pool_size"] == str(33 * 1024**2)
    log = {"mariadb": "innodb_log_file_size", "mysql": "innodb_redo_log_capacity"}[layer]
    assert facts[log] == str(32 * 1024**2) and facts["innodb_page_size"] == "8192"
    assert facts["innodb_flush_log_at_trx_commit"] == "2" and facts["log_bin"] == "OFF"


async def test_settings_of_postgresql_are_what_the_server_says_they_are(ground: Ground) -> None:
    keys = {"pool": "32M", "full_page_writes": False, "settings": {"random_page_cost": 1.5}}
    _, facts = await started(ground, "postgresql", keys)
    said = {name: facts[name] for name in ("full_page_writes", "shared_buffers", "random_page_cost")}
    assert said == {"full_page_writes": "off", "shared_buffers": "32MB", "random_page_cost": "1.5"}


@pytest.mark.parametrize(
    ("layer", "settings", "said"),
    [
        ("mariadb", {"innodb_use_fdatasync": 1}, "mariadbd ended with .*: unknown variable 'innodb_use_fdatasync=1'$"),
        ("mariadb", {"max_allowed_packet": 1000}, "max_allowed_packet should be 1000, but the server has 1024"),
        mysql({"query_cache_size": 1}, "mysqld ended with .*: unknown variable 'query_cache_size=1'"),
        mysql({"max_allowed_packet": 1000}, "max_allowed_packet should be 1000, but the server has 1024"),
        ("postgresql", {"io_method": "sync"}, 'unrecognized configuration parameter "io_method" in file'),
        ("postgresql", {"work_mem": "1kB"}, '1 kB is outside the valid range for parameter "work_mem"'),
    ],
)
async def test_a_setting_is_named_if_refused(ground: Ground, layer: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TrialError, match=said):
        await started(ground, layer, {"settings": settings})


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("layer", SERVERS)
async def test_a_server_that_is_killed_leaves_nothing(layer: str) -> None:
    before = shared_memory()
    async with site() as ground:
        await started(ground, layer)
        await kill(ground)
    assert shared_memory() <= before


def shared_memory() -> set[str]:
    """What PostgreSQL leaves where it is killed."""
    return {each.name for each in Path("/dev/shm").glob("PostgreSQL.*")}


async def kill(ground: Ground) -> None:
    """The server."""
    (process,) = ground.node.named.values()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert (await process.wait()).signal == "SIGKILL"


async def test_extents_are_shared_or_that_is_said(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 4096)
    shares = await ground.node.run(["cp", "--reflink=always", f"{tmp_path}/a", f"{tmp_path}/b"], check=False)
    if shares.ok:
        await started(ground, "mariadb", {"clone": "reflink"})
    else:
        with pytest.raises(Unsupported, match=r'does not share extents .*: write clone = "copy"'):
            await started(ground, "mariadb", {"clone": "reflink"})


async def test_a_node_without_mysql_can_not_have_it_and_how_to_get_one_is_said(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    (name,) = set(MysqlLayer().needs().programs) - set(MysqlLayer(bindir="/opt/mysql/bin").needs().programs)
    assert remedy(name) == "storlab image mysql"
    with pytest.raises(Unsupported, match="there is no MySQL: `storlab image mysql` unpacks one"):
        await started(ground, "mysql")


@pytest.mark.needs("root")
@pytest.mark.parametrize(("layer", "own"), [mysql("/1-mysql/programs "), ("postgresql", "/passwd /etc/passwd ")])
async def test_a_server_keeps_nothing_in_use_of_another_run(
    ground: Ground, layer: str, own: str, tmp_path: Path
) -> None:
    """It has a mount namespace of its own, whose copies would outlive the other run's unmounting."""
    other = tmp_path / "storlab-20260101-000000-0000" / "mnt"
    other.mkdir(parents=True)
    sh("mount", "-t", "tmpfs", "none", str(other))
    try:
        await started(ground, layer, {"data": {"tables": 1, "rows": 10}})
        (process,) = ground.node.named.values()
        seen = Path(f"/proc/{process.pid}/mountinfo").read_text()
    finally:
        sh("umount", str(other))
    assert own in seen and str(other) not in seen


@pytest.mark.needs("mysql")
async def test_a_mysqld_of_one_s_own_is_preferred(ground: Ground, tmp_path: Path) -> None:
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


async def test_a_mysqld_that_is_mariadb_s_is_refused(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "mysqld").write_text("#!/bin/sh\necho 'mysqld  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu'\n")
    (tmp_path / "mysqld").chmod(0o755)
    with pytest.raises(Unsupported, match=r'mysqld is MariaDB 10.11.14\S*: write layer = "mariadb"'):
        await started(ground, "mysql", {"bindir": str(tmp_path)})


@pytest.mark.needs("root")
async def test_without_doublewrite_the_disk_must_say_that_it_writes_a_page_whole(ground: Ground) -> None:
    layer = MariadbLayer(doublewrite="atomic")
    assert (layer.wanted()["innodb_doublewrite"], layer.torn_pages()) == ("OFF", (16384, False))
    assert layer.label() == "mariadb on atomic writes"
    with pytest.raises(Unsupported, match="takes a disk that writes 16k whole or not at all"):
        await started(ground, "mariadb", {"doublewrite": "atomic"})
    disk = (await ground.set_up({"layer": "file", "size": "16M"}, {"layer": "loop"})).resource
    assert isinstance(disk, Disk)
    with pytest.raises(Unsupported, match=r"promises that of no writes|Linux says nothing of .*; it does from 6\.11"):
        await require_atomic(ground.node, [disk.name], 16384)


LEDGER = SqlLedgerWorkload(rows=50, runtime=1)


@pytest.mark.parametrize("layer", SERVERS)
async def test_what_a_killed_server_acknowledged_is_asked_for_when_it_has_recovered(ground: Ground, layer: str) -> None:
    server, _ = await started(ground, layer)
    folder = f"{ground.scratch}/load"
    await ground.node.run(["mkdir", folder])
    place = RunContext(ground.node, server, folder, "commits", 0.0, 1)
    await LEDGER.prepare(place)
    launch = await LEDGER.launch(place)
    ended = (await ground.node.run(launch.argv, cwd=folder)).stdout.splitlines()
    numbers = [LEDGER.acknowledged(line) for line in ended]
    assert numbers == [*range(1, len(ended) + 1)] and numbers
    await kill(ground)
    data = next(Path(ground.scratch).glob(f".storlab-*/{layer}"))
    kind = layer_types()[layer]
    assert issubclass(kind, DatabaseLayer)
    recovering = kind.model_validate({}).recovering()
    again = await recovering.set_up(Dir("host", str(data.parent)), ground.context(5))
    assert isinstance(again, Server)
    place = RunContext(ground.node, again, folder, "commits", 0.0, 1)
    assert await LEDGER.broken(place, len(ended)) is None
    lost = await LEDGER.broken(place, len(ended) + 1)
    assert lost == Damage("lost", f"of {len(ended) + 1} acknowledged transactions {len(ended)} are there")
    await ground.node.run(sql(again, f"DELETE FROM ledger WHERE number = {len(ended)}"))
    half = await LEDGER.broken(place, len(ended) - 1)
    assert half is not None and half.kind == "torn"
    assert "a page has a transaction that the ledger does not" in half.text
    await ground.node.run(sql(again, "DROP TABLE pages"))
    gone = await LEDGER.broken(place, 0)
    assert gone is not None and "can't read its tables" in gone.text
    await ground.node.run(["rm", "--recursive", folder])


SYSBENCH = DataSet(tables=4, rows=50_000)


def node(*, kind: str = "local", machine: str = "a", volatile: bool = False) -> Node:
    identity = NodeIdentity("host", kind, "", Machine(machine, "boot"), volatile)
    return Node("host", connection=None, identity=identity)  # type: ignore[arg-type]


def recipe(server: str = "mariadb 10.11", data: DataSet | None = SYSBENCH, **made_with: str) -> Recipe:
    return Recipe(server, made_with, data)


def test_each_tool_loads_its_own_the_size_of_pages_is_part_of_it_and_settings_are_taken_as_toml_has_them() -> None:
    assert (SYSBENCH.tool, DataSet(scale=1).tool) == ("sysbench", "pgbench")
    assert SYSBENCH.bytes() >= 4 * 50_000 * 200 and DataSet(scale=1).bytes() >= 15_000_000
    assert MariadbLayer(doublewrite=False).made_with() == MariadbLayer().made_with()
    assert MariadbLayer(page_size=4096).made_with() != MariadbLayer().made_with()
    assert PostgresqlLayer(full_page_writes=False).made_with() == PostgresqlLayer().made_with()
    layer = MariadbLayer(settings={"innodb_io_capacity": 2000, "innodb_flush_sync": False, "max_connections": 0.5})
    assert layer.settings == {
        "innodb_io_capacity": "2000",
        "innodb_flush_sync": "off",
        "max_connections": "0.5",
    }


def test_data_sets_differ_by_all_that_their_bytes_depend_on_and_guests_have_their_own() -> None:
    every = [
        recipe(),
        recipe("mariadb 10.12"),
        recipe(data=None),
        recipe(data=DataSet(tables=4, rows=50_000, seed=2)),
        recipe(data=DataSet(tables=5, rows=50_000)),
        recipe(innodb_page_size="4096"),
    ]
    assert len({each.name(node()) for each in every}) == len(every)
    assert recipe().name(node()) == recipe().name(node())
    guest, other = node(kind="vm", volatile=True), node(kind="vm", machine="b", volatile=True)
    assert recipe().name(guest) == recipe().name(other) != recipe().name(node())
    assert recipe().name(node(machine="b")) != recipe().name(node())


@pytest.mark.parametrize(
    ("wanted", "same", "other"),
    [
        ("64M", "67108864", "64"),
        ("ON", "1", "OFF"),
        ("off", "OFF", "ON"),
        ("0.5", "0.500000", "0.6"),
        ("O_DIRECT", "o_direct", "fsync"),
        ("1", "ON", None),
    ],
)
def test_a_setting_is_the_same_in_any_spelling_and_told_if_refused(wanted: str, same: str, other: str | None) -> None:
    assert difference(wanted, same) is None
    assert difference(wanted, other) == (other or "no such setting")


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_said_is_compared(wanted: str, said: str) -> None:
    assert difference(said, said) is None
    assert difference(wanted, said) in (None, said)


def kept(cache: Cache, name: str, wanted: float, size: int = 1 << 20) -> None:
    """A part of this size that was wanted last at this time."""
    with cache.making(name, size) as work:
        (work / "data.tar").write_bytes(b"x" * size)
        cache.finish(work, About(versions=recipe().about(node())))
    os.utime(cache.folder / "parts" / name, (wanted, wanted))


def test_what_was_wanted_longest_ago_goes_first_and_never_what_was_just_made(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for wanted, name in enumerate(("first", "second", "third", "new")):
        kept(cache, name, float(wanted))
    forget_old(cache, keep="new", most=10 << 20)
    assert [part.name for part in cache.parts()] == ["new", "third", "second", "first"]
    forget_old(cache, keep="first", most=(5 << 20) // 2)
    assert [part.name for part in cache.parts()] == ["new", "first"]
    forget_old(cache, keep="first", most=1)
    assert [part.name for part in cache.parts()] == ["first"]


def test_they_are_listed_with_what_made_them_and_can_be_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "storlab" / "data-sets")
    kept(cache, "0123abcd", time.time())
    kept(cache, "4567abcd", time.time())
    listed = storlab("list", cache=tmp_path).stdout
    made_of = "(server mariadb 10.11, tables 4, rows 50000, seed 1, for local)"
    assert f"0123abcd 1.00 MiB, 1 min old {made_of}" in " ".join(listed.split()), listed
    (first, _) = sorted(json.loads(storlab("list", "--json", cache=tmp_path).stdout), key=lambda each: each["name"])
    assert (first["kind"], first["made_of"]["rows"]) == ("data set", "50000")
    removed = storlab("remove", "0123abcd", cache=tmp_path)
    assert (removed.returncode, removed.stdout) == (0, "removed: 0123abcd\n")
    assert [part.name for part in cache.parts()] == ["4567abcd"]
    assert storlab("remove", "../parts/4567abcd", cache=tmp_path).returncode == 2
    assert [part.name for part in cache.parts()] == ["4567abcd"]
