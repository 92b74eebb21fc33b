"""Loads of databases: what may be asked of them, what becomes of what they left, and that warm-ups are written back."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layers.database import with_mysql
from layers.database.test_databases import SERVERS, asked, site, started
from layers.sites import Ground
from storlab.base.errors import CommandFailed, TrialError
from storlab.base.reach import reaching
from storlab.findings.runs import BegunAgain
from storlab.layers.resources import Server
from storlab.workloads.base import RunContext
from storlab.workloads.pgbench import PgbenchWorkload
from storlab.workloads.sysbench import SysbenchWorkload
from workloads import DONE, FAILED, left

GOLDEN = Path(__file__).parent / "golden" / "sysbench-mariadb.txt"


def test_scripts_are_code_and_commands_of_the_shell_are_refused() -> None:
    assert [each.value for each in reaching(SysbenchWorkload(script="/srv/tpcc.lua"))] == ["/srv/tpcc.lua"]
    with pytest.raises(ValueError, match="may not run commands of the shell"):
        PgbenchWorkload(script="x.sql").resolve(lambda name: "SELECT 1;\n  \\setshell a id\n")


FIVE = SysbenchWorkload(runtime=5)


def test_percentiles_are_those_of_sysbench_s_histogram(tmp_path: Path) -> None:
    text = GOLDEN.read_bytes()
    found = FIVE.parse(left(tmp_path, DONE, stdout=text))
    got = found.totals()
    assert got["latency.p50"] <= got["latency.p95"] <= got["latency.p99.9"] <= got["latency.max"] * 1.02
    assert set(got) <= {spec.name for spec in SysbenchWorkload().declares()}
    assert found.series.filter(metric="tps").height == 5


def test_errors_that_sysbench_ignores_are_counted_and_many_fail_the_trial(tmp_path: Path) -> None:
    text = GOLDEN.read_text()
    ignored = re.sub(r"ignored errors: +0 ", "ignored errors:                      7 ", text)
    assert ignored != text
    left(tmp_path, DONE, stdout=ignored)
    with pytest.raises(TrialError, match=r"restarted 7 of 1391 .* more than max_ignored_errors = 0.1% allows"):
        SysbenchWorkload(max_ignored_errors=0.001).parse(tmp_path)
    found = FIVE.parse(tmp_path)
    assert found.totals()["errors.ignored"] == 7 and found.found == (BegunAgain(((7, 1391),)),)
    left(tmp_path, DONE, stdout=text)
    assert FIVE.parse(tmp_path).found == () == FIVE.parse(tmp_path).warnings
    with pytest.raises(TrialError, match=r"sysbench ran for 5\.\d+ s of the 20 s that it was asked for"):
        SysbenchWorkload().parse(tmp_path)
    with pytest.raises(TrialError, match="sysbench had 4 of the 16 clients that it was asked for"):
        SysbenchWorkload(threads=16, runtime=5).parse(tmp_path)


def test_why_a_load_ended_is_its_own_last_word(tmp_path: Path) -> None:
    said = (
        "sysbench 1.0.20 (using system LuaJIT)\n\nFATAL: unable to connect to MySQL server on socket 'x', aborting...\n"
    )
    with pytest.raises(CommandFailed, match="program ended with status 1: unable to connect to MySQL server"):
        SysbenchWorkload().parse(left(tmp_path, FAILED, stdout=said))
    said = (
        "pgbench: error: connection to server on socket failed\npgbench: error: could not create connection for setup\n"
    )
    with pytest.raises(CommandFailed, match="could not create connection for setup"):
        PgbenchWorkload().parse(left(tmp_path, FAILED, stderr=said))


PAGES = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_buffer_pool_pages_dirty', 'Innodb_buffer_pool_pages_flushed')"
)
SETTINGS = "SELECT @@innodb_max_dirty_pages_pct, @@innodb_max_dirty_pages_pct_lwm"
DIGITS = "(SELECT 0 UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6)"
FILL = "CREATE TABLE t SELECT REPEAT('x', 200) AS filler FROM " + ", ".join(f"{DIGITS} AS {name}" for name in "abcd")


async def pages(ground: Ground, server: Server, after: str = "") -> tuple[int, int]:
    """How many are dirty, and how many were ever written. ``after``: what is done right before, by the same client."""
    words = (await asked(ground, server, f"{after}{PAGES}")).split()
    return int(words[1]), int(words[3])


@pytest.mark.parametrize("layer", SERVERS[:2])
def test_dirty_pages_are_written_back_where_that_is_asked_for(
    layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mysql(tmp_path, monkeypatch)

    async def main() -> None:
        async with site() as ground:
            server, _ = await started(ground, layer)
            before = await asked(ground, server, SETTINGS)
            place = RunContext(ground.node, server, "/nonexistent", "load", 0.0, 1)
            # At once: a server that is idle for a second or two writes all back by itself.
            dirty, flushed = await pages(ground, server, f"{FILL}; ")
            assert dirty > 10
            without: Any = None  # whom it could ask: servers write back by themselves, too, sooner or later
            await SysbenchWorkload(write_back=False).settle(replace(place, node=without))
            await SysbenchWorkload().settle(place)
            # Not that none is dirty: MySQL's own threads (statistics, purge) have changed some again by now.
            assert (await pages(ground, server))[1] - flushed >= dirty
            assert await asked(ground, server, SETTINGS) == before

    asyncio.run(main())
