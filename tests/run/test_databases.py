"""MariaDB, MySQL and PostgreSQL under their own loads, on a directory: measured, with what each transaction cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Ended, Laboratory
from laboratory.databases import laboratory_of_databases
from laboratory.samples import sample
from layers.database import UNPACKED

STUDY = sample(__file__, "cases/three-databases.toml")
CELLS = (1, 2, 3) if UNPACKED is not None else (1, 3)
"""Those that can be: MariaDB, MySQL, PostgreSQL."""
STATUSES = ["done"] * len(CELLS) + ["unsupported"] * (3 - len(CELLS))


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


def metrics(lab: Laboratory) -> dict[tuple[int, str], float]:
    found = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("job").is_null())
    return {(cell, metric): value for cell, metric, value in found.select("cell", "metric", "value").iter_rows()}


def test_all_servers_are_measured_and_what_a_transaction_costs(lab: Laboratory) -> None:
    ran = lab.run(STUDY).with_status(0)
    assert sorted(record.status for record in lab.records()) == STATUSES, ran
    found = metrics(lab)
    for cell in CELLS:
        assert found[cell, "tps"] > 0 and found[cell, "latency.p99"] >= found[cell, "latency.p50"] > 0
        # Each transaction waits for a flush, which two that commit at once may share.
        assert found[cell, "flushes.per-transaction"] > 0.3
        assert found[cell, "bytes_written.per-transaction"] > 500
        assert found[cell, "cpu.time.per-transaction"] > 0
    for record in (each for each in lab.records() if each.status == "done"):
        ((_, server),) = record.facts.values()
        assert server["data"] == {"tables": 1, "rows": 1000, "seed": 1}
    assert lab.leftovers() == []


def test_mysql_is_unsupported_where_absent_and_the_others_run(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{lab.folder}/none")
    ran = lab.storlab("run", lab.study(STUDY), "--only", "server=mysql,postgresql", "--out", str(lab.out))
    assert "MySQL is not installed (storlab image mysql)" in ran.stdout + ran.stderr, ran
    assert sorted(record.status for record in lab.records()) == ["done", "unsupported"], ran


def test_pgbench_has_the_latency_of_each_transaction(lab: Laboratory) -> None:
    (lab.folder / "own.sql").write_text("SELECT 1;\n")
    words = {"layer": "postgresql", "data": "scale = 1", "load": "pgbench", "more": ', script = "own.sql"'}
    lab.run(sample(__file__, "cases/database-load.toml", **words)).with_status(0)
    (record,) = lab.records()
    assert record.status == "done", record.reason
    found = metrics(lab)
    assert found[1, "transactions"] == pl.read_parquet(lab.out / "tables" / "histograms.parquet")["count"].sum()


@pytest.mark.parametrize(
    ("layer", "data", "load", "more", "said"),
    [
        ("mariadb", "tables = 1, rows = 10", "pgbench", "", "pgbench is for postgresql, and not for layer mariadb"),
        ("postgresql", "tables = 1, rows = 10", "pgbench", "", "write data = { scale = 10 } in layer postgresql"),
        ("postgresql", "scale = 1", "sysbench", "", "write data = { tables = 4, rows = 50000 } in layer postgresql"),
        ("mariadb", "tables = 1, rows = 10", "sysbench", ", rows = 11", "rows = 11 is more than the data set has: 10"),
    ],
)
def test_a_load_that_lacks_its_data_is_refused_when_the_study_is_read(
    layer: str, data: str, load: str, more: str, said: str, lab: Laboratory
) -> None:
    study = sample(__file__, "cases/database-load.toml", layer=layer, data=data, load=load, more=more)
    ran = lab.storlab("plan", lab.study(study))
    assert ran.status == 2 and said in ran.stderr and "line 7" in ran.stderr, ran


def with_script(lab: Laboratory, path: Path) -> Ended:
    words = {"layer": "mariadb", "data": "tables = 1, rows = 10", "load": "sysbench", "more": f', script = "{path}"'}
    return lab.run(sample(__file__, "cases/database-load.toml", **words))


def test_sysbench_runs_a_script_of_one_s_own(lab: Laboratory) -> None:
    script = lab.folder / "own.lua"
    script.write_text(sample(__file__, "cases/updates.lua"))
    ran = with_script(lab, script)
    (record,) = lab.records()
    assert (ran.status, record.status) == (0, "done"), (ran, record.reason)
    assert metrics(lab)[1, "tps"] > 0


def test_where_a_script_is_wrong_is_what_sysbench_says_and_one_that_is_not_there_is_named(lab: Laboratory) -> None:
    ran = with_script(lab, lab.folder / "gone.lua")
    assert ran.status == 2 and f"{lab.folder}/gone.lua does not exist" in ran.stderr and not lab.out.exists(), ran
    script = lab.folder / "own.lua"
    script.write_text("function event()\n    this is no Lua\nend\n")
    with_script(lab, script)
    (record,) = lab.records()
    assert record.status == "failed" and record.reason is not None
    assert re.search(r"sysbench ended with status 1: .*own.lua:2: '=' expected near 'is'", record.reason)
    assert lab.leftovers() == []


@pytest.mark.needs("root")
def test_clients_of_another_node_reach_them_over_the_network(lab: Laboratory) -> None:
    lab.run(sample(__file__, "cases/three-databases-over-a-network.toml")).with_status(0)
    assert sorted(record.status for record in lab.records()) == STATUSES, [each.reason for each in lab.records()]
    found = metrics(lab)
    for cell in CELLS:
        assert found[cell, "tps"] > 0 and found[cell, "log.bytes"] > 1000 and found[cell, "pages.read"] >= 0
    for cell in CELLS[:-1]:
        assert found[cell, "dirty.pages.max"] > 0 and found[cell, "checkpoint.age.max"] > 0
        assert (cell, "purge.lag.max") in found
    assert lab.leftovers() == []
