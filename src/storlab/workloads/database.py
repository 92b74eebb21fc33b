"""What loads of databases have in common: a server of a dialect that they know, warmed up and written back before."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from storlab.base.errors import TrialError
from storlab.base.units import Duration
from storlab.layers.base import Layer
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.data_set import OWNER, sql
from storlab.layers.resources import Resource, Server
from storlab.measurements import Measurements
from storlab.workloads.base import RunContext, Workload

# MariaDB has no statement for it: with no dirty page allowed it writes back until there is none.
_WRITE_BACK = f"""
SELECT @@GLOBAL.innodb_max_dirty_pages_pct, @@GLOBAL.innodb_max_dirty_pages_pct_lwm;
CALL {OWNER}.allow_dirty(0, 0);
"""
_DIRTY = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'"
_UNTIL_CLEAN = 'until "$@" | grep -q "[^0-9]0$"; do sleep 0.05; done'
_PATIENCE = 300.0  # s
_ENOUGH = 0.9  # of the time that was asked


class DatabaseWorkload(Workload):
    """Clients of a database, for a time."""

    accepts: ClassVar[tuple[type[Resource], ...]] = (Server,)
    dialects: ClassVar[tuple[str, ...]]

    threads: int = Field(4, ge=1, le=10_000, description="Clients that work at once.")
    runtime: Duration = Field(20.0, ge=1, description="How long to measure, in whole seconds.")
    rate: float | None = Field(
        None, gt=0, le=1e6, description="Transactions per second to start; by default as many as possible."
    )
    write_back: bool = Field(
        True, description="Whether all that is dirty is written back (a checkpoint) between warm-up and measurement."
    )

    def duration(self, warm_up: float) -> float | None:
        return self.runtime + warm_up

    def check_on(self, layers: Sequence[Layer]) -> str | None:
        database = next((layer for layer in reversed(layers) if isinstance(layer, DatabaseLayer)), None)
        if database is None:
            return None  # somebody else's layer, of which nothing is known before it runs
        if database.dialect not in self.dialects:
            return f"{self.kind} is for {' and '.join(self.dialects)}, and not for layer {database.layer}"
        return self.lacks_data(database)

    def refuse_less(self, found: Measurements, time: str, clients: str) -> Measurements:
        """``found``. Raises ``TrialError`` where it ended early, or with other clients than it was asked for.

        ``time``: the metric of how long it ran, in s; ``clients``: the fact of how many it had.
        """
        lasted, had = found.totals().get(time, 0.0), str(found.facts.get(clients, self.threads))
        if lasted < _ENOUGH * self.runtime:
            raise TrialError(f"{self.kind} ran for {lasted:g} s of the {self.runtime:g} s that it was asked for")
        if had != str(self.threads):
            raise TrialError(f"{self.kind} had {had} of the {self.threads} clients that it was asked for")
        return found

    @abstractmethod
    def lacks_data(self, database: DatabaseLayer) -> str | None:
        """Which data it needs and this database does not start with; ``None`` where it has all."""

    def server(self, place: RunContext) -> Server:
        """The server under test. Raises ``TrialError`` where it speaks something else."""
        assert isinstance(place.target, Server)
        if place.target.dialect not in self.dialects:
            known = " and ".join(self.dialects)
            raise TrialError(f"{self.kind} is for servers of {known}, and this one is of {place.target.dialect}")
        return place.target

    async def settle(self, place: RunContext) -> None:
        """Write back what the warm-up left, where that is asked for."""
        server = self.server(place)
        if not self.write_back:
            return
        if server.dialect == "postgresql":
            await place.node.run(sql(server, "CHECKPOINT"), timeout=_PATIENCE)
        else:
            await _write_back(place, server)


async def _write_back(place: RunContext, server: Server) -> None:
    """Raises ``TrialError`` where the settings can't be put back: what is measured then is another server."""
    most, low, _, dirty = (await place.node.output(*sql(server, _WRITE_BACK + _DIRTY))).split()
    try:
        if dirty != "0":
            await place.node.run(["sh", "-c", _UNTIL_CLEAN, "sh", *sql(server, _DIRTY)], timeout=_PATIENCE)
    finally:
        await place.node.run(sql(server, f"CALL {OWNER}.allow_dirty({float(most)}, {float(low)})"))
