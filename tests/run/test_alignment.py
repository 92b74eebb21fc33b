"""The study ``alignment``, small and for real: who goes below 16k is measured here, and not known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Ended, Laboratory, needs_root
from laboratory.block import small_ext4_blocks
from storlab.analysis.summary import BlockIO, Summary, from_json
from study.program import call

SMALL = ("profile=quick", "files=1500", "synced=150", "pages=2M", "data=16M", "redo=64k", "disk=2G")
SET_UPS = ("xfs-16k-16k", "ext4-bigalloc", "ext4-16k")
LOADS = ("storm", "storm-fsync", "database")

pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended]]:
    """Two rounds of three set-ups under all loads, for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("alignment")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Laboratory(folder)
        options = [word for value in (*SMALL, f"scratch={lab.scratch}") for word in ("--set", value)]
        only = ("--only", f"fs={','.join(SET_UPS)}", "--rounds", "2", "--out", lab.out)
        ended = lab.storlab("run", "alignment", *options, *only, timeout=400)
        assert lab.leftovers() == []
        yield lab, ended


@pytest.fixture(scope="module")
def summary(ran: tuple[Laboratory, Ended]) -> Summary:
    lab, ended = ran
    assert ended.status == 0, str(ended)
    return from_json((lab.out / "summary.json").read_bytes())


def writes(summary: Summary) -> dict[tuple[str, str], BlockIO]:
    """By set-up and load."""
    rows = [row for row in summary.block_io if row.operation == "write"]
    return {(row.levels["fs"], row.levels["load"]): row for row in rows}


@needs_root
@pytest.mark.parametrize("load", LOADS)
def test_on_sectors_of_16k_xfs_writes_nothing_but_whole_16k(summary: Summary, load: str) -> None:
    row = writes(summary)["xfs-16k-16k", load]
    assert row.requests > 0
    assert row.below == ()
    share = next(share for share in row.units if share.unit == 16384)
    assert share.requests is not None
    assert (share.requests.low, share.requests.high) == (1.0, 1.0)


@needs_root
@pytest.mark.parametrize("load", LOADS)
def test_ext4_with_clusters_of_16k_goes_below_and_the_report_tells_with_what(summary: Summary, load: str) -> None:
    row = writes(summary)["ext4-bigalloc", load]
    assert row.below
    share = next(share for share in row.units if share.unit == 16384)
    assert share.requests is not None
    assert share.requests.high < 1
    assert sum(kind.requests.mean for kind in row.below) == pytest.approx(1 - share.requests.mean)


@needs_root
@small_ext4_blocks
def test_blocks_that_this_kernel_does_not_have_are_unsupported_with_the_reason(summary: Summary) -> None:
    states = [state for state in summary.cells if state.levels["fs"] == "ext4-16k"]
    assert {state.status for state in states} == {"unsupported"}
    assert all("EXT4-fs: bad block size 16384" in " ".join(state.reasons) for state in states)


@needs_root
@pytest.mark.parametrize("set_up", SET_UPS[:2])
def test_every_trial_of_a_load_writes_the_same_bytes(ran: tuple[Laboratory, Ended], set_up: str) -> None:
    rows = ran[0].run_folder.metrics.filter(
        pl.col("node").is_null(), pl.col("job").is_null(), pl.col("source").is_in(LOADS), metric="write.bytes"
    )
    trials = ran[0].run_folder.trials.rename({"factor.fs": "fs"}).select("trial", "fs")
    of_set_up = rows.join(trials, on="trial").filter(fs=set_up)
    assert dict(of_set_up["source"].value_counts().iter_rows()) == dict.fromkeys(LOADS, 2)
    assert of_set_up.group_by("source").agg(pl.col("value").n_unique())["value"].to_list() == [1, 1, 1]


@needs_root
def test_what_is_really_written_for_each_byte_is_known_of_every_load(summary: Summary) -> None:
    found = {(e.levels["fs"], e.levels["load"]) for e in summary.estimates if e.metric == "write.amplification"}
    assert found == {(set_up, load) for set_up in SET_UPS[:2] for load in LOADS}
    at_least_one = [e.mean for e in summary.estimates if e.metric == "write.amplification"]
    assert min(at_least_one) > 0.99  # all is written back within the trial


@needs_root
def test_the_summary_says_by_which_hook_of_the_kernel_it_was_counted_and_why(summary: Summary) -> None:
    probes = summary.facts["probes"]
    assert isinstance(probes, list)
    (told,) = probes
    assert (told["probe"], told["nodes"]) == ("alignment", ["host"])
    assert told["hook"] == ("tp_btf" if Path("/sys/kernel/btf/vmlinux").exists() else "classic tracepoint")
    assert told["why"]


@needs_root
def test_the_report_has_it_in_words_and_pictures(ran: tuple[Laboratory, Ended]) -> None:
    lab, ended = ran
    assert ended.status == 0 and "More: " in ended.stdout
    assert "Writes below 16k: load=storm" in call("report", str(lab.out), "--full").output
    assert '<section id="block"' in (lab.out / "report.html").read_text()
    assert (lab.out / "charts" / "block-writes-load-storm-alignments.png").is_file()
