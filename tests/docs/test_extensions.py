"""What examples/extensions has: found as an installed package's, run, imported, and torn down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import storlab as python_interface
from storlab.records.run_folder import RunFolder

from .pages import EXTENSIONS, nothing_is_left_of, read, start_storlab, storlab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and mounts need root")


def test_extensions_are_listed_beside_what_is_built_in(installed: tuple[Path, ...], tmp_path: Path) -> None:
    said = storlab("list", folder=tmp_path, path=installed).stdout
    names = {line.split()[0] for line in said.splitlines() if line.strip()}
    assert {"overlay", "redis", "sshd", "ssh-folder", "dd", "dirty-pages"} <= names


def test_an_extension_imports_files_and_is_named_where_it_is_missing(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    results = tmp_path / "results.txt"
    dd = ["dd", "if=/dev/zero", f"of={tmp_path / 'data'}", "bs=4096", "count=1000"]
    results.write_bytes(
        b"".join(subprocess.run(dd, check=True, capture_output=True, env={"LC_ALL": "C"}).stderr for _ in range(2))
    )
    assert "dd" in storlab("import", "--help", folder=tmp_path, path=installed).stdout.split()
    ended = storlab("import", "dd", str(results), "--out", "run", folder=tmp_path, path=installed)
    assert "2 trials of 1 cell" in ended.stdout, ended.stderr
    run = python_interface.open_run(tmp_path / "run")
    written = run.metrics.filter(pl.col("node").is_null(), metric="write.bytes")["value"].to_list()
    assert written == [4096000, 4096000]
    assert "write.bandwidth" in storlab("report", "run", folder=tmp_path, path=installed).stdout
    missing = storlab("report", "run", folder=tmp_path)
    assert missing.returncode == 2
    assert "no importer of dd is installed" in missing.stderr
    refused = storlab("import", "dd", str(results), "--option", "bs", folder=tmp_path, path=installed)
    assert (refused.returncode, "--option bs: write NAME=VALUE" in refused.stderr) == (2, True)


@needs_root
def test_a_round_of_the_extensions_study_runs_and_leaves_nothing(installed: tuple[Path, ...], tmp_path: Path) -> None:
    study = str(EXTENSIONS / "overlay.toml")
    ended = storlab("run", study, "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["done", "done"]
    found = set(run.metrics.select("source", "metric").iter_rows())
    assert {("log", "write.iops"), ("log", "write.bandwidth"), ("log", "elapsed")} <= found
    assert ("storage", "write.amplification") in found
    assert {("probe:dirty-pages", "dirty.max"), ("probe:dirty-pages", "writeback.max")} <= found

    nothing_is_left_of(run.manifest.run)


@needs_root
def test_redis_is_a_layer_that_a_command_measures_and_leaves_nothing(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    study = str(EXTENSIONS / "redis.toml")
    words = ["--rounds", "1", "--set", 'requests="2000"', "--out", "run", "--quiet"]
    ended = storlab("run", study, *words, folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["done"] * 3
    found = set(run.metrics.select("source", "metric").iter_rows())
    assert {("clients", "set.rate"), ("clients", "set.latency.p50"), ("clients", "set.latency.p99")} <= found
    logs = sorted((tmp_path / "run").rglob("*-redis.log"))
    assert len(logs) == 3
    for log in logs:
        assert "ready to accept connections" in log.read_text()
        assert "Redis is now ready to exit" in log.read_text()
    kept = {
        path.read_text().partition("appendfsync ")[2].split()[0] for path in (tmp_path / "run").rglob("*-redis.conf")
    }
    assert kept == {"always", "everysec", "no"}
    nothing_is_left_of(run.manifest.run)


@needs_root
def test_a_server_that_is_killed_fails_its_trial_at_once_with_its_last_lines(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--only", "appendfsync=no", "--rounds", "1", "--set", 'requests="2000000000"', "--out", "run", "--quiet"]
    command = ["run", str(EXTENSIONS / "redis.toml"), *words]
    with start_storlab(*command, folder=tmp_path, path=installed) as running:
        try:
            identity = _identity(tmp_path / "run")
            _wait_for(lambda: _processes("redis-benchmark", identity))
            for server in _processes("redis-server", identity):
                os.kill(server, signal.SIGKILL)
            running.communicate(timeout=60)
        finally:
            running.kill()
    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["failed"]
    (trial,) = (tmp_path / "run" / "trials").glob("*/trial.json")
    record = json.loads(trial.read_text())
    assert record["reason"].startswith("node host: redis-server was killed by SIGKILL: ")
    assert "ready to accept connections" in record["detail"]
    nothing_is_left_of(identity)


@needs_root
def test_a_disk_is_loaded_from_another_network_namespace_by_fios_own_client(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--rounds", "1", "--set", "runtime=1s", "--out", "run", "--quiet"]
    ended = storlab("run", str(EXTENSIONS / "nbd.toml"), *words, folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["done"] * 2
    found = run.metrics.filter((run.metrics["source"] == "fio") & (run.metrics["node"] == "client"))
    values = dict(found.select("metric", "value").iter_rows())
    assert values["read.iops"] > 0 and values["write.iops"] > 0
    assert 0 < values["write.latency.p99"] < 10
    for trial in (1, 2):
        record = json.loads((tmp_path / "run" / "trials" / f"{trial:04}" / "trial.json").read_text())
        (export,) = [fact for fact in record["facts"]["server"] if fact["layer"] == "nbd-export"]
        assert (export["transport"], export["advertised"]["size"]) == ("inet", 256 * 1024**2)
    _both_ends_saw_the_load(run)
    nothing_is_left_of(run.manifest.run)


def _both_ends_saw_the_load(run: RunFolder) -> None:
    """What the client's card sent, the server's card received: all that was written. Reads of holes send no data."""
    rows = run.metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null(), trial=1)
    seen = {(row["source"], row["metric"]): row["value"] for row in rows.iter_rows(named=True)}
    sent = seen["probe:card-traffic", "card.sent.bytes"]
    assert sent == pytest.approx(seen["probe:card-traffic@server", "card.received.bytes"], rel=0.2)
    assert sent > 0.5 * seen["fio", "write.iops"] * 1.0 * 4096, "for about one second"


@needs_root
def test_a_folder_of_another_node_is_mounted_over_ssh_and_without_a_crossing_is_local(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--rounds", "1", "--set", "workload.log.dd.count=50", "--out", "run", "--quiet"]
    ended = storlab("run", str(EXTENSIONS / "sshfs.toml"), *words, folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["done"] * 3
    for path in (tmp_path / "run" / "trials").glob("*/trial.json"):
        record = json.loads(path.read_text())
        facts = {fact["layer"]: fact for node in record["facts"].values() for fact in node}
        assert ("ssh-folder" in facts) == (record["levels"]["folder"] != "local")
        assert "ssh-folder" not in facts or facts["ssh-folder"]["filesystem"] == "fuse.sshfs"
    assert "PRIVATE KEY" not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "run").rglob("*") if path.is_file()
    )
    nothing_is_left_of(run.manifest.run)


@needs_root
def test_a_mount_whose_server_has_fallen_silent_is_cut_off_and_nothing_hangs(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--only", "folder=sshfs", "--rounds", "1", "--out", "run", "--quiet"]
    limits = ["--set", "workload.log.dd.count=50000", "--set", "trial.timeout=8s"]
    overwrite = ["--set", "workload.log.dd.overwrite=false"]
    command = ["run", str(EXTENSIONS / "sshfs.toml"), *words, *limits, *overwrite]
    with start_storlab(*command, folder=tmp_path, path=installed) as running:
        try:
            identity = _identity(tmp_path / "run")
            _wait_for(lambda: _processes("oflag=dsync", identity))
            stopped = [int(pid.name) for pid in Path("/proc").glob("[0-9]*") if _is_sshd_of(pid, identity)]
            assert len(stopped) >= 2  # the one that listens, and that of the connection
            for number in stopped:
                os.kill(number, signal.SIGSTOP)
            running.communicate(timeout=60)
        finally:
            running.kill()
    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["failed"]
    record = json.loads((tmp_path / "run" / "trials" / "0001" / "trial.json").read_text())
    assert "was stopped at its time-out of 8 s, in the phase 'measure'" in record["reason"]
    assert record["warnings"] == []  # all could be torn down, and that sshfs was killed was meant
    nothing_is_left_of(identity)


@needs_root
def test_clean_takes_down_what_an_extension_put_up_before_it_was_killed(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    study = str(EXTENSIONS / "overlay.toml")
    words = ["run", study, "--only", "on=overlayfs", "--rounds", "9", "--out", "run", "--quiet"]
    with start_storlab(*words, folder=tmp_path, path=installed) as running:
        try:
            _wait_for_mount("overlay", tmp_path / "run")
        finally:
            running.kill()
    ended = storlab("clean", "run", folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "merged" in ended.stdout
    nothing_is_left_of(python_interface.open_run(tmp_path / "run").manifest.run)


def _wait_for_mount(filesystem: str, run: Path) -> None:
    identity = _identity(run)
    mounts = Path("/proc/self/mountinfo")
    _wait_for(lambda: any(identity in line and f" - {filesystem} " in line for line in mounts.read_text().splitlines()))


def _identity(run: Path) -> str:
    _wait_for((run / "manifest.json").exists)
    return python_interface.open_run(run).manifest.run


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it has not come about within a minute"
        time.sleep(0.05)


def _processes(word: str, identity: str) -> list[int]:
    """Those with both in their command line."""
    found = ((pid, read(pid / "cmdline")) for pid in Path("/proc").glob("[0-9]*"))
    return [int(pid.name) for pid, command in found if word in command and identity in command]


def _is_sshd_of(pid: Path, identity: str) -> bool:
    return read(pid / "comm") == "sshd\n" and identity in read(pid / "cgroup")
