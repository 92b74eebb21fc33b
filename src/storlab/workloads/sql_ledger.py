"""Workload ``sql-ledger``: numbered transactions, each of which changes a page and says so in a second table.

What a crash check asks for afterwards: is every transaction there that was acknowledged, is none half there, and does
the server itself find its tables sound?
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from storlab.base.errors import CommandFailed, TrialError
from storlab.base.units import Duration, Size
from storlab.layers.database.data_set import DIALECTS, client, libpq_options, sql
from storlab.layers.resources import Resource, Server
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import program_path
from storlab.workloads.base import (
    ELAPSED,
    Damage,
    Launch,
    RunContext,
    Witness,
    bytes_of,
    elapsed_values,
    read_exit,
    unfinished,
)

_STRIDE = 7919  # a prime, so that neighbouring transactions change pages that lie far apart
_PATIENCE = 300.0  # s
# The shell writes transactions, and the client prints the number of each once its commit has returned.
_COMMITS = """
pages=$1 stride=$2 seconds=$3; shift 3
read -r up _ < /proc/uptime; end=$((${up%.*} + seconds)) number=0
while read -r up _ < /proc/uptime && test "${up%.*}" -lt "$end"; do
    number=$((number + 1)) page=$((number * stride % pages))
    echo "BEGIN; UPDATE pages SET number = $number WHERE page = $page;"
    echo "INSERT INTO ledger VALUES ($number, $page); COMMIT; SELECT $number;"
done | "$@"
"""
_FILLER = "repeat('x', {size})"
_ROWS = {  # as many as there are numbers
    "mariadb": "SELECT seq, 0, {filler} FROM seq_0_to_{last}",
    "mysql": "WITH RECURSIVE counted (seq) AS (SELECT 0 UNION ALL SELECT seq + 1 FROM counted WHERE seq < {last}) "
    "SELECT /*+ SET_VAR(cte_max_recursion_depth = {last}) */ seq, 0, {filler} FROM counted",
    "postgresql": "SELECT seq, 0, {filler} FROM generate_series(0, {last}) AS counted(seq)",
}
_CHANGED = "SELECT MAX(number) AS number, page FROM ledger GROUP BY page"
# Of a transaction that is half there, one table knows what the other does not.
_HALF = {
    "a page has a transaction that the ledger does not": "SELECT pages.page FROM pages LEFT JOIN ledger "
    "ON ledger.number = pages.number AND ledger.page = pages.page WHERE pages.number > 0 AND ledger.number IS NULL",
    "the ledger has a transaction whose page lacks it": f"SELECT last.page FROM ({_CHANGED}) AS last JOIN pages "
    "ON pages.page = last.page WHERE pages.number <> last.number",
}
METRICS = (
    MetricSpec("commit.count", "1", quantity="operations"),
    MetricSpec("commit.rate", "1/s", "higher", quantity="throughput"),
)


class SqlLedgerWorkload(Witness):
    """Commits transactions of a database one by one: what a crash check looks for afterwards."""

    kind: ClassVar[str] = "sql-ledger"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Server,)

    rows: int = Field(2000, ge=1, le=10_000_000, description="Rows that the transactions change, one each.")
    row_size: Size = Field(1024, ge=16, le=7000, description="Size of each of these rows.")
    runtime: Duration = Field(10.0, ge=1, description="How long transactions are begun, in whole seconds.")

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*METRICS, *ELAPSED)

    def duration(self, warm_up: float) -> float:
        return self.runtime

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: all transactions are measured" if warm_up else ""

    async def prepare(self, place: RunContext) -> None:
        server = _server(place)
        filler = _FILLER.format(size=self.row_size)
        rows = _ROWS[server.dialect].format(last=self.rows - 1, filler=filler)
        for statement in (
            "DROP TABLE IF EXISTS pages, ledger",
            "CREATE TABLE pages (page INTEGER PRIMARY KEY, number INTEGER NOT NULL, filler TEXT)",
            "CREATE TABLE ledger (number INTEGER PRIMARY KEY, page INTEGER NOT NULL)",
            f"INSERT INTO pages {rows}",
        ):
            await place.node.run(sql(server, statement), timeout=_PATIENCE)
        if server.dialect == "postgresql":  # whose log would else begin with whole pages, and repair torn ones for ever
            await place.node.run(sql(server, "CHECKPOINT"), timeout=_PATIENCE)

    async def launch(self, place: RunContext) -> Launch:
        asked = (str(self.rows), str(_STRIDE), str(round(self.runtime)))
        return Launch(("sh", "-c", _COMMITS, "sh", *asked, *client(_server(place))), cwd=place.folder)

    def parse(self, raw: Path) -> Measurements:
        ended = read_exit(raw)
        if not ended.ok:
            raise unfinished("the client", ended, bytes_of(raw / "stderr").decode(errors="replace"))
        count = sum(self.acknowledged(line) is not None for line in bytes_of(raw / "stdout").splitlines())
        values = [METRICS[0].value(count), METRICS[1].value(count / ended.elapsed if ended.elapsed else 0.0)]
        return Measurements(metric_frame([*values, *elapsed_values(ended)]))

    def acknowledged(self, line: bytes) -> int | None:
        return int(line) if line.isdigit() and len(line) < 20 else None

    async def broken(self, place: RunContext, acknowledged: int) -> Damage | None:
        server = _server(place)
        try:
            found = (
                await _answer(place, server, f"SELECT COUNT(*) FROM ledger WHERE number <= {acknowledged}")
            ).strip()
            if found != str(acknowledged):
                return Damage("lost", f"of {acknowledged} acknowledged transactions {found} are there")
            for what, query in _HALF.items():
                if (rows := (await _answer(place, server, query)).split()) != []:
                    return Damage("torn", f"{what}: page {rows[0]}")
            return await _unsound(place, server)
        except CommandFailed as error:
            return Damage("torn", f"the database can't read its tables: {error}")


async def _unsound(place: RunContext, server: Server) -> Damage | None:
    if server.dialect == "postgresql":
        program = await program_path(place.node, "pg_amcheck") or "pg_amcheck"
        options = [*libpq_options(server), "--install-missing", "--heapallindexed", server.database]
        try:
            ended = await place.node.run([program, *options], check=False, timeout=_PATIENCE)
        except CommandFailed as error:
            raise TrialError(f"the database can't be checked: {error}") from None
        said = (ended.stdout + ended.stderr).decode(errors="replace").strip().splitlines()
        return None if ended.ok else Damage("torn", f"pg_amcheck: {said[0] if said else ended.describe()}")
    checked = await _answer(place, server, "CHECK TABLE pages, ledger EXTENDED")
    for line in checked.splitlines():
        *_, kind, text = ["", *line.split("\t")]
        if (kind, text) != ("status", "OK"):
            return Damage("torn", f"CHECK TABLE: {text}")
    return None


async def _answer(place: RunContext, server: Server, statement: str) -> str:
    return (await place.node.run(sql(server, statement), timeout=_PATIENCE)).stdout.decode(errors="replace")


def _server(place: RunContext) -> Server:
    assert isinstance(place.target, Server) and place.target.dialect in DIALECTS
    return place.target
