"""What is asked of each database, and what of it becomes which metric.

See https://mariadb.com/kb/en/innodb-status-variables/, "Server Status Variables" of MySQL's manual, and "The Cumulative
Statistics System" of PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storlab.metrics import Domain, MetricSpec, by_name

COUNT, BEGAN, NOW, REACHED = "checkpoints", "checkpoint.began", "checkpoint.now", "INNODB_LSN_LAST_CHECKPOINT"
"""Names in answers: how many; in which second since 1970 the last finished one began; ms since then; up to where."""
END = "end"
"""What the last line of an answer says."""

_DIPS: tuple[tuple[str, str, Domain], ...] = (
    ("checkpoint.dip.depth", "1", "share"),
    ("checkpoint.dip.length", "s", ""),
)
SPECS = by_name(
    [
        MetricSpec("log.bytes", "B", "lower", noun="written to the database's log"),
        MetricSpec("log.flushes", "1", "lower", noun="flushes of the database's log", evidence="rare"),
        MetricSpec("log.full_pages", "1", "lower", noun="whole pages in the database's log"),
        MetricSpec("doublewrite.pages", "1", "lower", noun="pages written to the doublewrite buffer"),
        MetricSpec("pages.written", "1", "lower", noun="pages written back"),
        MetricSpec("pages.read", "1", "lower", noun="pages read into the pool"),
        MetricSpec("checkpoints", "1", "lower", noun="checkpoints", evidence="rare"),
        MetricSpec("lock.waits", "1", "lower", noun="waits for locks of rows"),
        MetricSpec("dirty.pages.max", "1", across="max", evidence="none"),
        MetricSpec("checkpoint.age.max", "B", across="max", evidence="none"),
        MetricSpec("purge.lag.max", "1", across="max", evidence="none"),
        *(
            MetricSpec(f"{name}.{which}", unit, "lower", "none", tail=which == "max", evidence="none", domain=domain)
            for name, unit, domain in _DIPS
            for which in ("median", "max")
        ),
    ]
)
SERIES = {"dirty.pages": "1", "checkpoint.age": "B", "purge.lag": "1"}
"""What is a state, and no count: a sample each, of which ``….max`` is the largest."""


@dataclass(frozen=True)
class Asked:
    """``statement`` answers in lines of a name and a number; ``counts`` and ``states``: name → metric."""

    statement: str
    counts: Mapping[str, str]
    states: Mapping[str, str]


_OF_INNODB = {
    "INNODB_OS_LOG_WRITTEN": "log.bytes",
    "INNODB_OS_LOG_FSYNCS": "log.flushes",
    "INNODB_DBLWR_PAGES_WRITTEN": "doublewrite.pages",
    "INNODB_BUFFER_POOL_PAGES_FLUSHED": "pages.written",
    "INNODB_BUFFER_POOL_READS": "pages.read",
    "INNODB_ROW_LOCK_WAITS": "lock.waits",
}
_DIRTY, _AGE, _HISTORY = "INNODB_BUFFER_POOL_PAGES_DIRTY", "INNODB_CHECKPOINT_AGE", "INNODB_HISTORY_LIST_LENGTH"
_STATES = {_DIRTY: "dirty.pages", _AGE: "checkpoint.age", _HISTORY: "purge.lag"}


def _of_mariadb() -> Asked:
    named = _named(*_OF_INNODB, *_STATES, REACHED)
    rows = f"SELECT VARIABLE_NAME, VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS {named}"
    return Asked(f"{rows} UNION ALL SELECT '{END}', 0;", _OF_INNODB, _STATES)


def _of_mysql() -> Asked:
    """Neither the log since the checkpoint nor what is to be purged is a variable there."""
    status = "FROM performance_schema.global_status"
    rows = (
        f"SELECT UPPER(VARIABLE_NAME), VARIABLE_VALUE {status} {_named(*_OF_INNODB, _DIRTY)}",
        f"SELECT '{_AGE}', MAX(VARIABLE_VALUE + 0) - MIN(VARIABLE_VALUE + 0) {status} "
        + _named("INNODB_REDO_LOG_CURRENT_LSN", "INNODB_REDO_LOG_CHECKPOINT_LSN"),
        f"SELECT '{REACHED}', VARIABLE_VALUE {status} {_named('INNODB_REDO_LOG_CHECKPOINT_LSN')}",
        f"SELECT '{_HISTORY}', COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'",
        f"SELECT '{END}', 0",
    )
    return Asked(" UNION ALL ".join(rows) + ";", _OF_INNODB, _STATES)


def _named(*names: str) -> str:
    return f"WHERE VARIABLE_NAME IN ({', '.join(map(repr, names))})"


def _of_postgres() -> Asked:
    sources = {
        "log.bytes": "wal_bytes FROM pg_stat_wal",
        "log.flushes": "wal_sync FROM pg_stat_wal",
        "log.full_pages": "wal_fpi FROM pg_stat_wal",
        "pages.written": "buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter",
        "pages.read": "blks_read FROM pg_stat_database WHERE datname = current_database()",
        "checkpoints": "checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
    }
    times = {
        BEGAN: "extract(epoch FROM checkpoint_time)::bigint FROM pg_control_checkpoint()",
        NOW: "floor(1000 * extract(epoch FROM clock_timestamp()))::bigint",
    }
    rows = [f"SELECT '{name}', {source}" for name, source in {**sources, **times}.items()]
    return Asked(" UNION ALL ".join([*rows, f"SELECT '{END}', 0"]) + ";", {name: name for name in sources}, {})


ASKED: Mapping[str, Asked] = {"mariadb": _of_mariadb(), "mysql": _of_mysql(), "postgresql": _of_postgres()}
"""By dialect."""
