"""Probe ``zfs``: samples of a real guest, what is missing, damaged or began anew, and files as ZFS prints them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.zfs_kstat import Counters, parse_counters, parse_transaction_groups
from storlab.measurements import Measurements
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.sampling import NAME
from storlab.probes.subject import Subject
from storlab.probes.zfs import ZfsProbe

GOLDEN = Path(__file__).parent / "golden"
TRIAL = (GOLDEN / "zfs.jsonl").read_bytes()
FILES = orjson.loads(TRIAL.splitlines()[-1])["contents"]
POOL = Subject(group="storage", end="below", pools=("storlab-20260102-030405-abcd-storage-0-7f63ea54",))


WINDOW = Window(23.8, 26.9)


def record(raw: Path, trial: bytes = TRIAL, window: Window = WINDOW) -> ProbeRecord:
    (raw / NAME).write_bytes(trial)
    return ProbeRecord(raw, window, POOL)


def parsed(raw: Path, trial: bytes = TRIAL, window: Window = WINDOW) -> Measurements:
    return ZfsProbe().parse(record(raw, trial, window))


def test_the_golden_trial_gives_these_numbers(tmp_path: Path) -> None:
    """40 times 4 KiB with an fsync each, then 8 MiB and ``zpool sync``."""
    found = parsed(tmp_path)
    assert found.totals() == pytest.approx(orjson.loads((GOLDEN / "zfs.json").read_bytes()))
    assert found.warnings == ()
    series = dict(found.series.group_by("metric").len().iter_rows())
    assert series["txg.sync"] == series["txg.dirty"] == found.totals()["txg.count"]
    assert series["zil.commits.rate"] == series["arc.size"] - 1 == TRIAL.count(b"\n") - 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"BEGAN", b"1", "dmu_tx began anew in the measured phase: ZFS was loaded again"),
        (b"dmu_tx_assigned", b"dmu_tx_delay", "dmu_tx:4: is not a counter with its name, type and value"),
    ],
)  # fmt: skip
def test_counters_that_began_anew_or_are_damaged_are_refused(
    tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    head, first, *others = TRIAL.splitlines(keepends=True)
    began = orjson.loads(first)["contents"][1].split()[5].encode()
    last = others[-1].replace(began if old == b"BEGAN" else old, new)
    with pytest.raises(ParseError, match=message):
        parsed(tmp_path, head + first + b"".join(others[:-1]) + last)


def test_counters_that_run_backwards_are_refused_and_too_few_samples_are_a_warning(tmp_path: Path) -> None:
    head, first, *others = TRIAL.splitlines(keepends=True)
    times = [orjson.loads(line)["t"] for line in (first, others[-1])]
    swapped = [line | {"t": t} for line, t in zip(map(orjson.loads, (others[-1], first)), times, strict=True)]
    with pytest.raises(ParseError, match="zil_commit_count ran backwards"):
        parsed(tmp_path, head + b"".join(orjson.dumps(each) + b"\n" for each in swapped))
    found = parsed(tmp_path, head + first)
    assert (found.metrics.height, found.warnings) == (0, ("zfs: too few samples in the measured phase",))


def test_what_this_zfs_does_not_count_is_named_and_absent_and_not_0(tmp_path: Path) -> None:
    head, *lines = map(orjson.loads, TRIAL.splitlines())
    for line in lines:
        line["contents"][0] = None
        line["contents"][-1] = None
        line["contents"][1] = line["contents"][1].replace("dmu_tx_wrlog_delay", "dmu_tx_renamed")
    found = parsed(tmp_path, b"".join(orjson.dumps(each) + b"\n" for each in (head, *lines)))
    (warning,) = found.warnings
    assert "lacks /proc/spl/kstat/zfs/zil, /proc/spl/kstat/taskq/zvol*, dmu_tx_wrlog_delay in /proc/spl" in warning
    assert not {"zil.commits", "zvol.tasks", "tx.log-delayed"} & found.totals().keys()
    assert found.totals()["tx.count"] > 0


def test_without_a_transaction_group_in_the_measured_phase_there_are_no_times_of_any(tmp_path: Path) -> None:
    found = parsed(tmp_path, window=Window(26.88, 26.9))
    assert found.totals()["txg.count"] == 0 and "txg.sync.mean" not in found.totals()
    assert found.warnings == (
        "zfs: no transaction group came to an end in the measured phase, so there are no times of any",
    )
    head, *lines = map(orjson.loads, TRIAL.splitlines())
    for line in lines:
        line["contents"][3] = line["contents"][3].splitlines(keepends=True)[0]
    found = parsed(tmp_path, b"".join(orjson.dumps(each) + b"\n" for each in (head, *lines)))
    assert found.warnings == (
        "zfs: no history of transaction groups is kept: the module's parameter zfs_txg_history is 0",
    )
    assert not [name for name in found.totals() if name.startswith("txg.")]


names = st.from_regex(r"[a-z][a-z_0-9]{0,40}", fullmatch=True)
counts = st.integers(-(2**63), 2**64 - 1)


def printed(numbers: dict[str, int], began: int = 7, read: int = 9) -> str:
    """See ``kstat_seq_show_named``."""
    rows = "".join(f"{name:<31} {4:<4} {value}\n" for name, value in numbers.items())
    return f"23 1 0x01 {len(numbers)} {48 * len(numbers)} {began} {read}\n{'name':<31} {'type':<4} data\n{rows}"


@given(st.dictionaries(names, counts, max_size=5), st.integers(0, 2**63 - 1))
def test_counters_are_read_as_zfs_prints_them_and_cut_off_nowhere(numbers: dict[str, int], began: int) -> None:
    text = printed(numbers, began)
    assert parse_counters(text, "x") == Counters(began, 9, numbers)
    for length in range(len(text)):
        with pytest.raises(ParseError, match=r"^x:\d+: "):
            parse_counters(text[:length], "x")


times = st.lists(st.integers(0, 2**40), min_size=4, max_size=4)


@given(st.lists(st.tuples(st.sampled_from("OQSC"), st.integers(0, 2**40), times), max_size=5))
def test_transaction_groups_are_those_that_are_on_the_disk(rows: list[tuple[str, int, list[int]]]) -> None:
    """See ``spa_txg_history_data``."""
    columns = "txg birth state ndirty nread nwritten reads writes otime qtime wtime stime"
    lines = [
        f"{10 + at} 100 {state} {dirty} 0 {2 * dirty} 0 3 {' '.join(map(str, spans))}\n"
        for at, (state, dirty, spans) in enumerate(rows)
    ]
    text = f"{columns}\n{''.join(lines)}"
    found = parse_transaction_groups(text, "x")
    expected = [(10 + at, dirty, (100 + sum(spans)) / 1e9) for at, (on, dirty, spans) in enumerate(rows) if on == "C"]
    assert [(each.number, each.dirty, each.ended) for each in found.committed] == expected
    assert found.kept == len(rows)
    assert parse_transaction_groups(f"23 0 0x01 1 0 5 9\n{text}", "x") == found, "as ZFS 0.6 begins it"
    with pytest.raises(ParseError, match="x:1: has no column ndirty"):
        parse_transaction_groups(text.replace("ndirty", "dirt"), "x")
    if len(lines) > 1:
        with pytest.raises(ParseError, match="x:3: is not in the order of transaction groups"):
            parse_transaction_groups(text.replace("\n11 ", "\n10 "), "x")
