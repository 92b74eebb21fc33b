"""Every study in examples/ can be planned here, those that take seconds run; examples/extensions and chains work."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import storlab as python_interface
from laboratory import wait_until
from storlab.records.run_folder import RunFolder

from .pages import EXAMPLES, EXTENSIONS, ROOT, blocks, nothing_is_left_of, read, running_storlab, storlab

root = pytest.mark.needs("root")
guests = pytest.mark.needs("guests")
OTHERS = (EXTENSIONS, *(EXAMPLES / name for name in ("suite", "lab", "readers")))  # whose files are no studies
STUDIES = sorted(path for path in EXAMPLES.rglob("*.toml") if not any(map(path.is_relative_to, OTHERS)))
DEVICE = EXAMPLES / "device.toml"
GUESTS = [
    EXAMPLES / f"{name}.toml"
    for name in (
        "vm-disks", "encryption", "slow-disk", "dirty-limits", "io-limits", "raid-levels", "lvm-snapshots",
        "shaped-network", "shares", "atomic-writes",
    )
]  # fmt: skip


@pytest.mark.parametrize(
    "study",
    [pytest.param(s, marks=pytest.mark.needs(*["guests"] * (s in GUESTS)), id=s.stem) for s in STUDIES if s != DEVICE],
)
def test_a_plan_of_the_study_runs_here(study: Path, tmp_path: Path) -> None:
    ended = storlab("plan", str(study), folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    notes = [line for line in ended.stdout.splitlines() if line.startswith("Note:")]
    shared = ("Kept for each round", "set up side by side")
    assert all(any(said in line for said in shared) for line in notes), "what is shared is said, and nothing is amiss"


@root
def test_the_ten_lines_of_the_readme_are_ten_and_run(tmp_path: Path) -> None:
    study = EXAMPLES / "ten-lines.toml"
    assert [b.text for b in blocks(ROOT / "README.md") if b.language == "toml"] == [study.read_text()]
    assert len(study.read_text().splitlines()) <= 10
    ended = storlab("run", str(study), "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "ext4 against xfs" in ended.stdout


@root
def test_cells_of_one_stack_share_it_where_stacks_are_kept(tmp_path: Path) -> None:
    study = str(EXAMPLES / "keep-stacks.toml")
    small = ["--only", "fs=ext4", "--only", "bs=64k,1M", "--set", "workload.read.fio.size=32M"]
    ended = storlab("run", study, *small, "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"undo":"loop.detach"') == 1


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
    assert "dd-results" in storlab("import", "--help", folder=tmp_path, path=installed).stdout.split()
    ended = storlab("import", "dd-results", str(results), "--out", "run", folder=tmp_path, path=installed)
    assert "2 trials of 1 cell" in ended.stdout, ended.stderr
    run = python_interface.open_run(tmp_path / "run")
    written = run.metrics.filter(pl.col("node").is_null(), metric="write.bytes")["value"].to_list()
    assert written == [4096000, 4096000]
    assert "write.bandwidth" in storlab("report", "run", folder=tmp_path, path=installed).stdout
    missing = storlab("report", "run", folder=tmp_path)
    assert missing.returncode == 2 and "no importer of dd-results is installed" in missing.stderr
    refused = storlab("import", "dd-results", str(results), "--option", "bs", folder=tmp_path, path=installed)
    assert (refused.returncode, "--option bs: write NAME=VALUE" in refused.stderr) == (2, True)


def round_of(study: Path, folder: Path, *sets: str, path: tuple[Path, ...] = ()) -> RunFolder:
    """A round of a study, all of whose trials are done, and of which nothing is left but its records."""
    words = [word for each in sets for word in ("--set", each)]
    started = ["run", str(study), "--rounds", "1", *words, "--out", "run", "--quiet"]
    ended = storlab(*started, folder=folder, path=path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    made = python_interface.open_run(folder / "run")
    assert set(made.trials["status"].to_list()) == {"done"}
    nothing_is_left_of(made.manifest.run)
    return made


Ran = Callable[..., RunFolder]


@pytest.fixture
def ran(installed: tuple[Path, ...], tmp_path: Path) -> Ran:
    """Runs a round of a study of the extensions."""
    return lambda study, *sets: round_of(EXTENSIONS / study, tmp_path, *sets, path=installed)


def metrics(run: RunFolder) -> set[tuple[str, str]]:
    return set(run.metrics.select("source", "metric").iter_rows())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "run" / "trials").glob("*/trial.json"))]


def only_failure(folder: Path) -> dict[str, Any]:
    assert python_interface.open_run(folder / "run").trials["status"].to_list() == ["failed"]
    (record,) = records(folder)
    return record


@root
def test_a_round_of_the_extensions_study_runs_and_leaves_nothing(ran: Ran) -> None:
    run = ran("overlay.toml")
    assert run.trials.height == 2
    assert {("log", "write.iops"), ("log", "write.bandwidth"), ("log", "elapsed")} <= metrics(run)
    assert {("probe:dirty-pages", "dirty.max"), ("probe:dirty-pages", "writeback.max")} <= metrics(run)
    assert ("storage", "write.amplification") in metrics(run)


@root
def test_redis_is_a_layer_that_a_command_measures_and_leaves_nothing(ran: Ran, tmp_path: Path) -> None:
    run = ran("redis.toml", 'requests="2000"')
    assert run.trials.height == 3
    found = {name for source, name in metrics(run) if source == "clients"}
    assert {"set.rate", "set.latency.p50", "set.latency.p99"} <= found
    logs = [path.read_text() for path in (tmp_path / "run").rglob("*-redis.log")]
    assert len(logs) == 3
    assert all("ready to accept connections" in log and "Redis is now ready to exit" in log for log in logs)
    kept = {path.read_text().partition("appendfsync ")[2].split()[0] for path in tmp_path.rglob("*-redis.conf")}
    assert kept == {"always", "everysec", "no"}


@root
def test_a_server_that_is_killed_fails_its_trial_at_once_with_its_last_lines(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--only", "appendfsync=no", "--rounds", "1", "--set", 'requests="2000000000"', "--out", "run", "--quiet"]
    command = ["run", str(EXTENSIONS / "redis.toml"), *words]
    with running_storlab(*command, folder=tmp_path, path=installed) as running:
        identity = _identity(tmp_path / "run")
        assert wait_until(lambda: _processes("redis-benchmark", identity))
        for server in _processes("redis-server", identity):
            with suppress(ProcessLookupError):  # the first of a namespace takes the others with it
                os.kill(server, signal.SIGKILL)
        running.communicate(timeout=60)
    record = only_failure(tmp_path)
    assert record["reason"].startswith("node host: redis-server was killed by SIGKILL: ")
    assert "ready to accept connections" in record["detail"]
    nothing_is_left_of(identity)


@root
def test_a_disk_is_loaded_from_another_network_namespace_by_fios_own_client(ran: Ran, tmp_path: Path) -> None:
    run = ran("nbd.toml", "runtime=1s")
    assert run.trials.height == 2
    found = run.metrics.filter((run.metrics["source"] == "fio") & (run.metrics["node"] == "client"))
    values = dict(found.select("metric", "value").iter_rows())
    assert values["read.iops"] > 0 and values["write.iops"] > 0
    assert 0 < values["write.latency.p99"] < 10
    for record in records(tmp_path):
        (export,) = [fact for fact in record["facts"]["server"] if fact["layer"] == "nbd-export"]
        assert (export["transport"], export["advertised"]["size"]) == ("inet", 256 * 1024**2)
    _both_ends_saw_the_load(run)


def _both_ends_saw_the_load(run: RunFolder) -> None:
    """What the client's card sent, the server's card received: all that was written. Reads of holes send no data."""
    rows = run.metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null(), trial=1)
    seen = {(row["source"], row["metric"]): row["value"] for row in rows.iter_rows(named=True)}
    sent = seen["probe:card-traffic", "card.sent.bytes"]
    assert sent == pytest.approx(seen["probe:card-traffic@server", "card.received.bytes"], rel=0.2)
    assert sent > 0.5 * seen["fio", "write.iops"] * 1.0 * 4096, "for about one second"


@root
def test_a_folder_of_another_node_is_mounted_over_ssh_and_without_a_crossing_is_local(ran: Ran, tmp_path: Path) -> None:
    assert ran("sshfs.toml", "workload.log.dd.count=50").trials.height == 3
    for record in records(tmp_path):
        facts = {fact["layer"]: fact for node in record["facts"].values() for fact in node}
        assert ("ssh-folder" in facts) == (record["levels"]["folder"] != "local")
        assert "ssh-folder" not in facts or facts["ssh-folder"]["filesystem"] == "fuse.sshfs"
    assert "PRIVATE KEY" not in "".join(read(path) for path in (tmp_path / "run").rglob("*") if path.is_file())


@root
def test_a_mount_whose_server_has_fallen_silent_is_cut_off_and_nothing_hangs(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    words = ["--only", "folder=sshfs", "--rounds", "1", "--out", "run", "--quiet"]
    limits = ["--set", "workload.log.dd.count=50000", "--set", "trial.timeout=8s"]
    overwrite = ["--set", "workload.log.dd.overwrite=false"]
    command = ["run", str(EXTENSIONS / "sshfs.toml"), *words, *limits, *overwrite]
    with running_storlab(*command, folder=tmp_path, path=installed) as running:
        identity = _identity(tmp_path / "run")
        assert wait_until(lambda: _processes("oflag=dsync", identity))
        ours = (pid for pid in Path("/proc").glob("[0-9]*") if identity in read(pid / "cgroup"))
        stopped = [int(pid.name) for pid in ours if read(pid / "comm") == "sshd\n"]
        assert len(stopped) >= 2  # the one that listens, and that of the connection
        for number in stopped:
            os.kill(number, signal.SIGSTOP)
        running.communicate(timeout=60)
    record = only_failure(tmp_path)
    assert "was stopped at its time-out of 8 s, in the phase 'measure'" in record["reason"]
    assert record["warnings"] == []  # all could be torn down, and that sshfs was killed was meant
    nothing_is_left_of(identity)


@root
def test_clean_takes_down_what_an_extension_put_up_before_it_was_killed(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    study = str(EXTENSIONS / "overlay.toml")
    words = ["run", study, "--only", "on=overlayfs", "--rounds", "9", "--out", "run", "--quiet"]
    with running_storlab(*words, folder=tmp_path, path=installed):
        mounted = re.compile(rf"{_identity(tmp_path / 'run')}.* - overlay ")
        assert wait_until(lambda: mounted.search(Path("/proc/self/mountinfo").read_text()))
    ended = storlab("clean", "run", folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "merged" in ended.stdout
    nothing_is_left_of(python_interface.open_run(tmp_path / "run").manifest.run)


def _identity(run: Path) -> str:
    assert wait_until((run / "manifest.json").exists)
    return python_interface.open_run(run).manifest.run


def _processes(word: str, identity: str) -> list[int]:
    found = ((pid, read(pid / "cmdline")) for pid in Path("/proc").glob("[0-9]*"))
    return [int(pid.name) for pid, command in found if word in command and identity in command]


PAGE = ROOT / "docs" / "how-to" / "chains-that-cross-nodes.md"
CHAINS = [block.text for block in blocks(PAGE) if (block.language, block.about) == ("toml", "study")]


def on_machines(study: str, folder: Path, *sets: str, path: tuple[Path, ...] = ()) -> RunFolder:
    """A round of a study of which nothing is left but its records. Machines without ZFS are small."""
    groups = re.findall(r"^\[nodes\.(\w+)\]", study, re.MULTILINE) if "zpool" not in study else []
    small = [f"nodes.{group}.memory=192M" for group in groups]
    (folder / "study.toml").write_text(study)
    return round_of(folder / "study.toml", folder, *small, *sets, path=path)


def journalled(folder: Path, undo: str, word: str = "") -> int:
    """How often something was set up that is undone so, and has the word among its arguments."""
    lines = (folder / "run" / "journal.jsonl").read_text().splitlines()
    return sum(f'"undo":"{undo}"' in line and word in line for line in lines)


def layers(folder: Path, trial: int = 1) -> dict[str, list[str]]:
    return {node: [fact["layer"] for fact in found] for node, found in records(folder)[trial - 1]["facts"].items()}


@guests
def test_a_disk_is_served_over_nbd_or_is_the_clients_own(tmp_path: Path) -> None:
    on_machines(CHAINS[0], tmp_path, "workload.log.fio.size=64k")
    for trial, record in zip((1, 2), records(tmp_path), strict=True):
        found, transport = layers(tmp_path, trial), record["levels"]["transport"]
        assert ("server" in found) == (transport == "nbd"), found
        assert found["client"][-2:] == ["mkfs", "mount"]


@guests
def test_a_disk_its_server_and_the_client_are_on_three_machines(tmp_path: Path) -> None:
    on_machines(CHAINS[1].replace("--size=64M", "--size=1M"), tmp_path)
    assert {"store", "server", "client"} <= set(layers(tmp_path))


@pytest.mark.needs("zfs")
def test_machines_have_a_raidz_of_three_disks_each_and_one_folder(tmp_path: Path) -> None:
    sizes = ["workload.pool.fio.size=2M", "workload.folder.fio.size=1M"]
    run = on_machines(CHAINS[2], tmp_path, *sizes, "nodes.vm.count=2", "nodes.vm.memory=448M")
    nodes = ["vm-1", "vm-2"]
    loads = run.metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null(), metric="write.bytes")
    found = set(loads.select("source", "node").iter_rows())
    assert {(load, node) for load in ("pool", "folder") for node in nodes} <= found
    assert loads.filter(source="folder")["value"].to_list() == [1024**2] * 2, "each writes files of its own"
    for node in nodes:
        assert layers(tmp_path)[node].count("virtio-blk") == 3


@pytest.mark.needs("zfs")
def test_a_pool_is_kept_for_a_round_and_one_volume_in_it_has_two_clients(tmp_path: Path) -> None:
    words = ['[factors]\nbs = ["4k", "64k"]\n', 'bs = "{bs}"']
    text = CHAINS[3].replace("[nodes.store]", f"{words[0]}\n[nodes.store]").replace('bs = "4k"', words[1])
    run = on_machines(text, tmp_path, "workload.write.fio.size=1M", "nodes.c.memory=192M")
    assert run.trials["status"].to_list() == ["done"] * 2
    assert run.trials["block"].n_unique() == 1, "both are of one round's pool"
    assert (journalled(tmp_path, "zpool.destroy"), journalled(tmp_path, "server.stop", "qemu-nbd")) == (1, 2)
    assert {"c-1", "c-2"} <= set(layers(tmp_path))


@guests
def test_redis_its_disk_and_its_client_are_on_three_machines(installed: tuple[Path, ...], tmp_path: Path) -> None:
    study = (EXTENSIONS / "three-machines.toml").read_text()
    run = on_machines(study, tmp_path, 'requests="200"', 'factors.appendfsync=["no"]', path=installed)
    assert "set.rate" in run.metrics["metric"].to_list()
    assert layers(tmp_path)["db"][-3:] == ["mkfs", "mount", "redis"]
