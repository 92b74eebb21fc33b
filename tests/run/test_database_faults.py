"""What goes wrong with a database while it is measured, in its own words; and what a stall and a checkpoint cost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, kill, wait_until
from laboratory.databases import laboratory_of_databases
from laboratory.samples import sample
from storlab.layers.database.innodb import MariadbLayer
from storlab.layers.database.postgresql import PostgresqlLayer
from storlab.records.run_folder import TrialRecord
from storlab.report.language.say import say
from storlab.timeseries.drift import Event, dips

pytestmark = pytest.mark.needs("root")

PROGRAMS = {"mariadb": "mariadbd", "postgresql": "postgres"}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


def study(layer: str, *, keys: str = "", runtime: int = 30, rows: int = 1000, size: str = "600M") -> str:
    words = {"layer": layer, "keys": keys, "runtime": runtime, "rows": rows, "size": size}
    return sample(__file__, "cases/database-to-be-broken.toml", **words)


def measuring(lab: Laboratory) -> bool:
    return any("--histogram=on" in words for words in lab.commands().values())


def server(lab: Laboratory, layer: str) -> int:
    """The first process of the server."""
    named = (pid for pid, words in lab.commands().items() if words[0].rpartition("/")[2] == PROGRAMS[layer])
    return min(named)


@contextlib.contextmanager
def meanwhile(lab: Laboratory, act: Callable[[], object]) -> Iterator[None]:
    """Do something two seconds into the measurement."""

    def wait_and_act() -> None:
        assert wait_until(lambda: measuring(lab), 240)
        time.sleep(2)
        act()

    with ThreadPoolExecutor(1) as other:
        acting = other.submit(wait_and_act)
        yield
    acting.result()


def failed(lab: Laboratory) -> TrialRecord:
    """The only trial; nothing of it is left."""
    (record,) = lab.records()
    assert record.status == "failed" and record.reason is not None, record
    assert lab.leftovers() == []
    return record


def test_a_server_that_does_not_start_fails_the_trial_with_its_own_error(lab: Laboratory) -> None:
    lab.execute(study("postgresql", keys=', settings = { work_mem = "1kB" }'))
    record = failed(lab)
    assert "work_mem" in str(record.reason) and "time-out" not in str(record.reason)
    assert "work_mem" in record.detail


@pytest.mark.parametrize("layer", PROGRAMS)
def test_a_server_that_is_killed_fails_the_trial_with_the_signal_and_last_lines(layer: str, lab: Laboratory) -> None:
    with meanwhile(lab, lambda: os.kill(server(lab, layer), signal.SIGKILL)):
        lab.execute(study(layer))
    record = failed(lab)
    assert f"{PROGRAMS[layer]} was killed by SIGKILL" in str(record.reason)
    assert "into the load)" in str(record.reason) and "out of memory" not in str(record.reason)
    assert "ready" in record.detail, "the last lines of its log"


@contextlib.contextmanager
def memory_cgroup(name: str) -> Iterator[Path]:
    """One of the memory controller, v1 or v2."""
    first = Path("/sys/fs/cgroup/memory")
    path = (first if first.is_dir() else first.parent) / name
    path.mkdir()
    try:
        yield path
    finally:
        assert wait_until(lambda: not (path / "cgroup.procs").read_text().strip())
        path.rmdir()


def test_a_server_that_the_kernel_kills_for_its_memory_is_told_as_such(lab: Laboratory) -> None:
    with memory_cgroup(f"test-{lab.folder.name}") as group:
        limit = next(group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())

        def confine() -> None:
            limit.write_text("0")  # what it has it keeps; the next page is one too many
            (group / "cgroup.procs").write_text(str(server(lab, "mariadb")))

        with meanwhile(lab, confine):
            lab.execute(study("mariadb", keys=', pool = "256M"', rows=100_000))
        record = failed(lab)
    assert "was killed by SIGKILL" in str(record.reason)
    assert "the kernel of host was out of memory, and killed mariadbd (process" in str(record.reason)


@pytest.mark.parametrize(("layer", "kind"), [("mariadb", MariadbLayer), ("postgresql", PostgresqlLayer)])
def test_a_server_that_does_not_stop_is_killed_and_that_is_said(
    layer: str, kind: type[MariadbLayer | PostgresqlLayer], lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "stop_patience", 2.0)

    def stop_again_and_again() -> None:  # whoever asks a server to end wakes it, too
        assert wait_until(lambda: not measuring(lab))
        pid = server(lab, layer)
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.001)

    with meanwhile(lab, stop_again_and_again):
        lab.execute(study(layer, runtime=4))
    (record,) = lab.records()
    assert record.status == "done", record.reason
    assert any(f"{PROGRAMS[layer]} had to be killed" in say(each) for each in record.warnings), record.warnings
    assert lab.leftovers() == []


def test_a_disk_that_is_full_under_the_redo_log_is_named_as_such(lab: Laboratory) -> None:
    lab.execute(study("mariadb", keys=', log_size = "256M"', size="200M"))
    record = failed(lab)
    assert "Cannot set log file" in str(record.reason) and "256" in str(record.reason), record


@pytest.mark.parametrize(
    ("layer", "test", "spare", "said"),
    [
        ("postgresql", "oltp_update_non_index", 4 * 2**20, "pg_wal"),  # less than another segment of its log
        ("mariadb", "oltp_insert", 0, "sbtest1' is full"),  # the redo log was there before; a table grows
    ],
)
def test_a_disk_that_fills_up_in_mid_trial_fails_the_trial_by_that_reason(
    layer: str, test: str, spare: int, said: str, lab: Laboratory
) -> None:
    def fill() -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        (mount,) = (path for path in mounts if path.startswith(str(lab.folder)))
        with contextlib.suppress(OSError), Path(mount, "filler").open("wb", buffering=0) as filler:
            while (room := os.statvfs(mount)).f_bavail * room.f_bsize > spare:  # root may fill what others may not
                filler.write(bytes(2**18))
        with contextlib.suppress(StopIteration):  # its socket is gone
            for _ in range(20 if layer == "postgresql" else 0):  # segments that it has kept for later are used up
                ask(lab, layer, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 16777216))")

    with meanwhile(lab, fill):
        text = study(layer, size="400M", rows=50_000, keys=', pool = "64M"').replace("oltp_update_non_index", test)
        lab.execute(text.replace("threads = 2", 'threads = 2, distribution = "uniform"'))
    record = failed(lab)
    assert "No space left on device" in str(record.reason), record
    assert said in record.detail, record.detail


@pytest.mark.parametrize(
    ("layer", "said"), [("mariadb", "Table 'storlab.sbtest1' doesn't exist"), ("postgresql", "does not exist")]
)
def test_an_error_that_is_no_conflict_fails_the_trial_in_its_own_words(layer: str, said: str, lab: Laboratory) -> None:
    with meanwhile(lab, lambda: ask(lab, layer, "DROP TABLE sbtest1")):
        lab.execute(study(layer))
    record = failed(lab)
    assert "sysbench ended with status" in str(record.reason) and said in str(record.reason), record


def client(lab: Laboratory, layer: str) -> list[str]:
    """The words of a client of the run's server."""
    socket = next(each for each in Path("/tmp").glob(f"storlab-{lab.identity}*/s/*") if each.is_socket())
    if layer == "mariadb":
        return ["mariadb", "--no-defaults", f"--socket={socket}", "--user=storlab", "storlab"]
    where = [f"--host={socket.parent}", f"--port={socket.suffix[1:]}", "--username=storlab"]
    return ["psql", "--no-psqlrc", *where, "--dbname=storlab"]


def ask(lab: Laboratory, layer: str, sql: str) -> bool:
    """Whether the server does it."""
    option = "-e" if layer == "mariadb" else "-c"
    done = subprocess.run([*client(lab, layer), option, sql], check=False, capture_output=True)
    return done.returncode == 0


def test_waiting_for_a_lock_in_vain_is_an_error_and_no_conflict(lab: Laboratory) -> None:
    """sysbench would ignore that by itself."""
    hold = "BEGIN; UPDATE sbtest1 SET k = 1; SELECT SLEEP(8)"
    with meanwhile(lab, lambda: ask(lab, "mariadb", hold)):
        lab.execute(study("mariadb", keys=", settings = { innodb_lock_wait_timeout = 1 }"))
    assert "Lock wait timeout exceeded" in str(failed(lab).reason)


@pytest.mark.parametrize("layer", PROGRAMS)
def test_clean_ends_the_server_of_a_run_that_was_killed(layer: str, lab: Laboratory) -> None:
    process = lab.start_run(study(layer))
    assert wait_until(lambda: measuring(lab))
    kill(process)
    process.wait()
    cleaned = lab.storlab("clean", lab.out)
    assert cleaned.status == 0, cleaned
    assert lab.leftovers() == []
    again = lab.storlab("clean", lab.out)
    assert (again.status, again.stdout) == (0, f"{lab.out}: nothing is left to tear down\n")


FROZEN = 6.0  # s
# The file system below the disk under test is frozen, so its requests wait; and the load always has some in flight.
TWO_TRIALS = sample(__file__, "cases/postgresql-two-trials.toml")


def freeze_a_checkpoint(lab: Laboratory) -> None:
    """In the midst of a trial: neither it nor any commit comes to its end before the disk answers again."""
    time.sleep(3)  # more of the rate before it, with which it is compared
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    lowest = min((path for path in mounts if str(lab.folder) in path), key=len)
    # It connects before: a process of the server that starts may write.
    words = [*client(lab, "postgresql"), "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as asked:
        assert asked.stdin and asked.stdout
        asked.stdin.write("SELECT 'connected';\n")
        assert asked.stdout.readline() == "connected\n"
        freezing = subprocess.Popen(["fsfreeze", "--freeze", lowest])  # it writes all back first, and nothing goes on
        try:
            asked.stdin.write("CHECKPOINT;\n")
            assert freezing.wait() == 0
            time.sleep(FROZEN)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", lowest], check=True)
        assert asked.stdout.readline() == "CHECKPOINT\n"


def test_a_disk_that_answers_no_flush_is_a_stall_and_a_checkpoint_on_it_has_a_dip(lab: Laboratory) -> None:
    """And a trial without either says so."""
    with meanwhile(lab, lambda: freeze_a_checkpoint(lab)):
        ran = lab.run(TWO_TRIALS)
    assert ran.status == 0, ran
    metrics = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("job").is_null())
    frozen, free = (dict(metrics.filter(trial=trial).select("metric", "value").iter_rows()) for trial in (1, 2))
    for metric in ("stall.longest", "tps.longest_stall"):
        assert frozen[metric] > FROZEN - 2 > free[metric], metric
    assert frozen["stall.count"] >= 1 and free["stall.count"] == 0
    series = pl.read_parquet(lab.out / "tables" / "series.parquet").sort("t")
    begun = series.filter(metric="checkpoint")  # on a busy machine, the server's own may come after it
    assert set(begun["trial"]) == {1}
    events = [Event(begin, begin + length) for begin, length in begun.select("t", "value").rows()]
    stood = max(events, key=lambda event: event.end - event.begin)
    assert 2 < stood.begin < 20 and FROZEN - 2 < stood.end - stood.begin < FROZEN + 5
    rate = series.filter(metric="tps", trial=1)
    during = rate.filter(pl.col("t") > stood.begin + 1, pl.col("t") <= stood.end)["value"]
    assert (during == 0).sum() >= FROZEN - 2, rate["value"].to_list()
    # Of a rate that was uneven before, even a standstill is no dip.
    found = [dip for dip in dips(rate["t"].to_numpy(), rate["value"].to_numpy(), events) if dip is not None]
    assert found
    for which, of in (("median", statistics.median), ("max", max)):
        assert frozen[f"checkpoint.dip.depth.{which}"] == pytest.approx(of([dip.depth for dip in found]))
        assert frozen[f"checkpoint.dip.length.{which}"] == pytest.approx(of([dip.length for dip in found]))
    assert not any(name.startswith("checkpoint.dip.") for name in free)
    assert lab.storlab("report", lab.out, "--format", "html").status == 0
    page = (lab.out / "report.html").read_text()
    assert "triangles are checkpoints" in page and re.search(rf"\b{len(events)} checkpoints? of", page)
    assert "no checkpoint began while the load ran" in page
    assert lab.leftovers() == []
