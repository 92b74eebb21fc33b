"""Transactions that a crash check asks for, on real servers: what is lost, half there or unsound is found."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.clients import sql
from storlab.layers.resources import Dir, Server
from storlab.registry import layer_types
from storlab.workloads.base import RunContext
from storlab.workloads.database.ledger import SqlLedgerWorkload
from storlab.workloads.witness import Damage

from . import with_mysql
from .test_databases import SERVERS, site, started

LEDGER = SqlLedgerWorkload(rows=50, runtime=1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_mysql(tmp_path / "cache", monkeypatch)


@pytest.mark.parametrize("layer", SERVERS)
def test_what_a_killed_server_acknowledged_is_asked_for_when_it_has_recovered(layer: str) -> None:
    async def main() -> None:
        async with site() as ground:
            server, _ = await started(ground, layer)
            folder = f"{ground.scratch}/load"
            await ground.node.run(["mkdir", folder])
            place = RunContext(ground.node, server, folder, "commits", 0.0, 1)
            await LEDGER.prepare(place)
            launch = await LEDGER.launch(place)
            ended = (await ground.node.run(launch.argv, cwd=folder)).stdout.splitlines()
            numbers = [LEDGER.acknowledged(line) for line in ended]
            assert numbers == [*range(1, len(ended) + 1)] and numbers
            (process,) = ground.node.named.values()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()

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

    asyncio.run(main())
