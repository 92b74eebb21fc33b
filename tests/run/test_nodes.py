"""Several nodes on this machine: one start, results of each and of all together, and cards in namespaces."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, ended, in_a_loop, kill, opened, processes_with, wait_for
from laboratory.samples import sample
from storlab.measurements import merge_histograms
from storlab.percentiles import percentiles
from storlab.records.run_folder import RunFolder, TrialRecord
from storlab.run.session import open_session

NODES = ["n-1", "n-2", "n-3", "n-4"]
STUDY = sample(__file__, "cases/four-nodes-on-directories.toml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """Four agents on this machine as four nodes."""
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab:
        lab.execute(STUDY)
        yield lab.run_folder


def the_trial(run: RunFolder) -> TrialRecord:
    (record,) = run.records()
    assert record.status == "done", record.reason
    return record


def test_all_start_at_one_instant_and_how_far_apart_they_really_did_is_recorded(run: RunFolder) -> None:
    record = the_trial(run)
    assert record.start_skew is not None and 0.0 <= record.start_skew < 0.25
    starts = [node.start for name, node in record.nodes.items() if name in NODES]
    assert max(starts) - min(starts) == pytest.approx(record.start_skew, abs=0.01), "the clocks are one and the same"
    assert run.trials["start_skew"].to_list() == [record.start_skew]


@pytest.mark.parametrize("metric", ["bandwidth", "write.iops", "write.bytes"])
def test_every_node_has_its_own_numbers_and_sums_are_those_of_all(run: RunFolder, metric: str) -> None:
    rows = of_load(run).filter(metric=metric)
    each = rows.filter(pl.col("node").is_not_null())
    assert sorted(each["node"]) == NODES
    assert rows.filter(pl.col("node").is_null())["value"].to_list() == [pytest.approx(each["value"].sum())]
    series = run.series.filter(source="load", metric="write.bandwidth")
    assert sorted(series["node"].unique()) == NODES


def test_percentiles_of_all_nodes_come_from_their_merged_histograms(run: RunFolder) -> None:
    metric = "write.latency.p99"
    together = of_load(run).filter(pl.col("node").is_null(), metric=metric)["value"].to_list()
    histograms = run.histograms.filter(pl.col("job").is_null(), source="load", metric="write.latency")
    assert sorted(histograms["node"].unique()) == NODES
    assert together == [pytest.approx(percentiles(merge_histograms(histograms), [99.0])[99.0])]


def test_each_node_has_a_stack_and_a_name_of_its_own_and_the_host_is_watched_once(run: RunFolder) -> None:
    facts = the_trial(run).facts
    assert sorted(facts) == NODES, "each has its own stack, and `touch {target}/of-{node}` worked in each"
    assert the_trial(run).probes["host-load"] == ["host"]


def of_load(run: RunFolder) -> pl.DataFrame:
    """The load's metrics, all jobs of a node together."""
    return run.metrics.filter(pl.col("job").is_null(), source="load")


def test_a_node_that_fails_is_named_with_its_own_reason_and_the_others_are_stopped(lab: Laboratory) -> None:
    load = '["sh", "-c", "test {node} = n-3 || exec sleep 3600; sleep 0.2; echo no luck >&2; exit 5"]'
    study = STUDY[: STUDY.index("fio = {")] + f"command = {{ argv = {load} }}\n"
    lab.execute(study.replace("bandwidth", "elapsed"))
    (record,) = lab.records()
    assert record.status == "failed"
    assert "status 5" in (record.reason or "") and "no luck" in (record.reason or "")


def output(lab: Laboratory, trial: int, node: str, load: str) -> str:
    return (lab.out / "trials" / f"{trial:04d}" / node / load / "stdout").read_text()


@pytest.mark.needs("root")
def test_two_of_them_reach_each_other_by_their_addresses_and_leave_nothing(lab: Laboratory) -> None:
    lab.run(sample(__file__, "cases/serve-and-ask.toml")).with_status(0)
    said = [output(lab, trial, "client", "ask").split() for trial in (1, 2)]
    assert said[0] == said[1], "a node keeps its address for the whole run"
    assert said[0][0] == "hello" and set(said[0][1:]) == {"10.213.0.2", "10.213.0.3"}


@pytest.mark.needs("root")
def test_an_agent_that_is_killed_comes_back_with_the_same_card_and_clean_undoes_all(lab: Laboratory) -> None:
    go = lab.folder / "go"
    process = lab.start_run(sample(__file__, "cases/mounted-on-a-node.toml", go=go))
    wait_for(process, lab.sleeps)
    marked = set(processes_with("STORLAB_NODE=client")) & set(processes_with(f"STORLAB_RUN={lab.identity}"))
    (agent,) = (pid for pid in marked if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    os.kill(agent, signal.SIGKILL)
    wait_for(process, lambda: (lab.out / "trials" / "0001" / "trial.json").exists())
    wait_for(process, lambda: any(line.get("trial") == 2 for line in lab.journal()) and lab.sleeps())
    namespaces = sorted(path.name for path in Path("/run/netns").glob(f"storlab-{lab.identity}*"))
    assert namespaces == [f"storlab-{lab.identity}", f"storlab-{lab.identity}-client"]
    kill(process)
    assert ended(process).status == -9
    result = lab.storlab("clean", lab.out).with_status(0)
    did = {line.split(": ")[1].split()[0] for line in result.stdout.splitlines()}
    assert {"unmounted", "detached", "removed"} <= did and lab.leftovers() == []
    go.touch()
    lab.go_on()
    assert [record.status for record in lab.records()] == ["failed", "done"]
    assert {"storlab0", "10.213.0.2/16"} <= set(output(lab, 2, "client", "load").replace("@", " ").split())


@pytest.mark.parametrize(("error", "told"), [(ConnectionResetError(104, "by peer"), False), (ValueError("no"), True)])
@in_a_loop
async def test_an_error_that_nobody_waited_for_is_told_but_for_a_connection_that_breaks_while_it_is_closed(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        async with open_session("20260101-000000-abcd"):
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            del future
            gc.collect()
    assert ("never retrieved" in caplog.text) == bool(caplog.records) == told


@in_a_loop
async def test_which_versions_programs_are_is_asked_for_the_records_and_not_for_a_plan() -> None:
    async with open_session("20260101-000000-abcd") as session:
        assert session.facts["host"]["tools"] == {}
        await session.ask_versions()
        assert session.facts["host"]["tools"]["mount"]["version"].startswith("mount from util-linux")
