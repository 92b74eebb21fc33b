"""What elbencho writes, as its documentation and source have it: CSV, text and live statistics, as trials."""

import re
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.tools.elbencho.phases import Phase, in_trials
from storlab.tools.importer import Part

from . import GOLDEN, read, series

MIB = 2**20
TEXT = "OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n=========== ===\n{}---\n"

parts_of = partial(read, "elbencho")


def golden(name: str) -> list[Part]:
    return parts_of((GOLDEN / f"elbencho-{name}").read_bytes())


def test_phases_with_the_same_settings_are_one_trial_and_of_a_table_that_was_cut_off_whole_lines_count() -> None:
    first, again, small = golden("results.csv")
    assert first.traits == again.traits
    assert {name for name in first.traits if first.traits[name] != small.traits[name]} == {"block size"}
    assert (first.traits["block size"], small.traits["block size"]) == ("1M", "128k")
    assert first.measured.facts["phases"] == "MKDIRS WRITE SYNC READ RMFILES"
    text = (GOLDEN / "elbencho-results.csv").read_bytes()
    (part,) = parts_of(text[: text.index(b"SYNC") - 20])
    assert part.measured.facts["phases"] == "MKDIRS WRITE"


def test_bandwidth_is_that_of_bytes_and_time_where_the_rounded_one_agrees() -> None:
    (mixed,) = golden("mixed.csv")
    totals = mixed.measured.totals()
    assert totals["mixed.write.bandwidth"] == pytest.approx(140 * MIB / 30)  # printed as 4 MiB/s
    assert totals["mixed.read.bandwidth"] == pytest.approx(328 * MIB / 30)
    assert totals["mixed.read.latency.max"] == pytest.approx(0.187334) and mixed.traits["mixed"] == "RWMIX70"
    wrong = (GOLDEN / "elbencho-mixed.csv").read_bytes().replace(b",4,4,", b",9,9,", 1)
    (part,) = parts_of(wrong)
    assert part.measured.totals()["mixed.write.bandwidth"] == 9 * MIB


def test_live_statistics_are_series_and_a_line_is_of_the_time_at_which_its_phase_began() -> None:
    new = (GOLDEN / "elbencho-results.csv").read_bytes()
    assert parts_of(new)[0].started == datetime(2026, 5, 22, 14, 0, 1, 120_000, tzinfo=UTC)
    old = parts_of(new.replace(b"3.1.5", b"3.0.19"))  # that of its end
    assert old[0].started == datetime(2026, 5, 22, 14, 0, 1, 115_000, tzinfo=UTC)
    assert golden("mixed.csv")[0].started is None  # without a zone
    (part,) = golden("live.csv")
    found = part.measured
    assert series(found, "write.bandwidth") == [(at, rate * MIB) for at, rate in enumerate((420, 431, 433, 425), 1)]
    assert found.totals()["write.bandwidth"] == (420 + 431 + 433 + 425) * MIB / 4
    assert found.totals()["write.iops"] == (420 + 431 + 433 + 425) / 4
    assert series(found, "dirs.create.bandwidth") == []  # elbencho prints zeros of it
    assert "by its live statistics" in found.warnings[0]


def test_text_has_latencies_percentiles_and_histograms() -> None:
    disk, files = golden("results.txt")
    totals = disk.measured.totals()
    assert (totals["write.time"], totals["read.time"]) == (64.0, 32.0)
    assert (totals["write.latency.mean"], totals["write.latency.p99.9"]) == pytest.approx((1.95e-3, 19484e-6))
    assert disk.measured.histograms["count"].sum() == 5242 + 258000 + 140000 + 115000 + 6046
    told = {"label": "nvme", "threads": "2", "file size": "1g", "block size": "4k", "IO depth": "8"}
    assert disk.traits == told | {"direct IO": "yes", "random": "yes", "paths": "/dev/nvme0n1"}
    assert files.measured.totals()["files.stat.rate"] == 181818
    assert files.measured.totals()["write.entry.latency.max"] == pytest.approx(9.1e-3)


@given(st.integers(0, 359_999_999))
def test_times_are_read_as_elbencho_prints_them(milliseconds: int) -> None:
    seconds, rest = divmod(milliseconds, 1000)
    hours, minutes, seconds = seconds // 3600, seconds % 3600 // 60, seconds % 60
    text, exact = f"{hours}h{minutes}m{seconds}s", milliseconds - rest
    if not hours:
        text, exact = (f"{minutes}m" if minutes else "") + f"{seconds}.{rest:03}s", milliseconds
    if not hours and not minutes and not seconds:
        text = f"{rest}ms"
    (part,) = parts_of(TEXT.format(f"READ   Elapsed time  :  1ms  {text}\n       IOPS  :  1  1\n"))
    assert part.measured.totals()["read.time"] == pytest.approx(exact / 1000, abs=1e-9)


@given(st.dictionaries(st.integers(1, 111), st.integers(1, 10**9), min_size=1))
def test_bins_are_those_of_quarters_of_a_doubling(counts: dict[int, int]) -> None:
    edges = {at: 2 ** (at / 4) for at in sorted(counts)}
    words = ", ".join(
        f"{edge:.1f}: {counts[at]}" if edge < 10 else f"{edge:.0f}: {counts[at]}" for at, edge in edges.items()
    )
    (part,) = parts_of(TEXT.format(f"READ   IOPS  :  1  1\n       IO lat hist      : [ {words} ]\n"))
    bins = part.measured.histograms.sort("lower")
    assert bins["count"].to_list() == list(dict(sorted(counts.items())).values())
    assert bins["upper"].to_list() == pytest.approx([edge * 1e-6 for edge in edges.values()])
    assert (bins["upper"][:-1] <= bins["lower"][1:] * (1 + 1e-9)).all()


@given(st.lists(st.sampled_from(["WRITE", "READ", "SYNC", "DROPCACHE", "RMFILES"]), max_size=20))
def test_no_trial_has_a_phase_twice_and_none_is_lost(operations: list[str]) -> None:
    phases = [Phase(operation, at) for at, operation in enumerate(operations)]
    trials = in_trials(phases)
    for trial in trials:
        names = [phase.operation for phase in trial if phase.operation != "SYNC"]
        assert names and len(names) == len(set(names))
    kept = [phase.line for trial in trials for phase in trial if phase.operation != "SYNC"]
    assert kept == [phase.line for phase in phases if phase.operation not in ("SYNC", "DROPCACHE")]


def test_a_command_line_that_ends_early_names_no_settings() -> None:
    whole = (GOLDEN / "elbencho-results.txt").read_text()
    for command in ("", "elbencho", "elbencho -b", "elbencho --block=", "elbencho 'a"):
        text, replaced = re.subn("COMMAND LINE: .*", f"COMMAND LINE: {command}", whole)
        assert replaced and all("block size" not in part.traits for part in parts_of(text))
