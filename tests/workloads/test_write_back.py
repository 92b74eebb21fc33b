"""What a warm-up left is written back before anything is measured, and the server is then as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from layers.database import with_mysql
from layers.database.test_databases import SERVERS, asked, site, started
from layers.sites import Ground
from storlab.layers.database.clients import sql
from storlab.layers.resources import Server
from storlab.workloads.base import RunContext
from storlab.workloads.database.sysbench import SysbenchWorkload

PAGES = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_buffer_pool_pages_dirty', 'Innodb_buffer_pool_pages_flushed')"
)
SETTINGS = "SELECT @@innodb_max_dirty_pages_pct, @@innodb_max_dirty_pages_pct_lwm"
DIGITS = "(SELECT 0 UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6)"
FILL = "CREATE TABLE t SELECT REPEAT('x', 200) AS filler FROM " + ", ".join(f"{DIGITS} AS {name}" for name in "abcd")


async def pages(ground: Ground, server: Server) -> tuple[int, int]:
    """How many are dirty, and how many were ever written."""
    words = (await asked(ground, server, PAGES)).split()
    return int(words[1]), int(words[3])


@pytest.mark.parametrize("layer", SERVERS[:2])
@pytest.mark.parametrize("wanted", [True, False])
def test_dirty_pages_are_written_back_where_that_is_asked_for(
    wanted: bool, layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mysql(tmp_path, monkeypatch)

    async def main() -> None:
        async with site() as ground:
            server, _ = await started(ground, layer)
            before = await asked(ground, server, SETTINGS)
            await ground.node.run(sql(server, FILL))
            place = RunContext(ground.node, server, "/nonexistent", "load", 0.0, 1)
            dirty, flushed = await pages(ground, server)
            assert dirty > 10
            await SysbenchWorkload(write_back=wanted).settle(place)
            written = (await pages(ground, server))[1] - flushed
            # Not that none is dirty: MySQL's own threads (statistics, purge) have changed some again by now.
            assert (written >= dirty) == wanted, f"{written} pages were written of {dirty} dirty ones"
            assert await asked(ground, server, SETTINGS) == before

    asyncio.run(main())
