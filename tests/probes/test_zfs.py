"""Probe ``zfs``: samples of a real guest, what is missing, damaged or restarted, and files as ZFS prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.findings.runs import TooFewSamples
from storlab.measurements import Measurements
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.sampling import NAME
from storlab.probes.subject import Subject
from storlab.probes.zfs import iostat
from storlab.probes.zfs.probe import ZfsProbe
from storlab.tools.zfs import (
    MAINTENANCE,
    QUEUES,
    Counters,
    PoolLook,
    parse_counters,
    parse_pool_look,
    parse_transaction_groups,
)

GOLDEN = Path(__file__).parent / "golden"
TRIAL = (GOLDEN / "zfs.jsonl").read_bytes()
HEAD, *LOOKS = TRIAL.splitlines(keepends=True)
FILES = orjson.loads(LOOKS[-1])["contents"]
WAITS, SIZES = ((GOLDEN / f"zpool-iostat-{option}.txt").read_text() for option in "wr")
IOSTAT = (GOLDEN / "zpool-iostat.txt").read_bytes()
POOL = Subject(group="storage", end="below", pools=("storlab-20260102-030405-abcd-storage-0-7f63ea54",))


def _line(t: float, writes: int, wait: str, waiting: int, active: int) -> str:
    words = f"tank 1 2 0 {writes} 0 6 - {wait} - {wait} - - - - - - - 0 0 0 0 0 0 {waiting} {active} 0 0 0 0 0 0"
    return f"{t:.6f} {words.replace(' ', chr(9))}\n"


LINES = "".join(
    _line(*each)
    for each in ((23.5, 9, "1", 9, 9), (24.5, 100, "2000000", 4, 2), (25.5, 300, "6000000", 6, 3), (28.5, 7, "-", 0, 0))
).encode()


def record(raw: Path, trial: bytes = TRIAL) -> ProbeRecord:
    (raw / NAME).write_bytes(trial)
    return ProbeRecord(raw, Window(23.8, 26.9), POOL)


def changed(raw: Path, change: Callable[[list[str | None]], None], *, only: int = 0) -> Measurements:
    """With the files of each sample, or of those from ``only`` on, changed."""
    looks = [orjson.loads(look) for look in LOOKS]
    for look in looks[only:]:
        change(look["contents"])
    return ZfsProbe().parse(record(raw, HEAD + b"".join(orjson.dumps(each) + b"\n" for each in looks)))


def test_the_golden_trial_gives_these_numbers(tmp_path: Path) -> None:
    """40 times 4 KiB with an fsync each, then 8 MiB and ``zpool sync``."""
    found = ZfsProbe().parse(record(tmp_path))
    assert found.totals() == pytest.approx(orjson.loads((GOLDEN / "zfs.json").read_bytes()))
    assert found.warnings == ()
    series = dict(found.series.group_by("metric").len().iter_rows())
    assert series["txg.sync"] == series["txg.dirty"] == found.totals()["txg.count"]
    assert series["zil.commits.rate"] == series["arc.size"] - 1 == len(LOOKS) - 1


def replaced(file: int, old: str, new: str) -> Callable[[list[str | None]], None]:
    def change(contents: list[str | None]) -> None:
        contents[file] = str(contents[file]).replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(1, "13757484814", "1"), "dmu_tx restarted in the measured phase: ZFS was loaded again"),
        (replaced(1, "dmu_tx_assigned", "dmu_tx_delay"), "dmu_tx:4: is not a counter with its name, type and value"),
        (replaced(0, "zil_commit_count                4    40", "zil_commit_count 4 0"), "commit_count ran backwards"),
    ],
)
def test_counters_that_restarted_or_are_damaged_are_refused(
    tmp_path: Path, change: Callable[[list[str | None]], None], message: str
) -> None:
    with pytest.raises(ParseError, match=message):
        changed(tmp_path, change, only=len(LOOKS) - 1)


def test_what_this_zfs_does_not_count_is_named_and_absent_and_not_0(tmp_path: Path) -> None:
    def change(contents: list[str | None]) -> None:
        contents[0] = contents[5] = None
        replaced(1, "dmu_tx_wrlog_delay", "dmu_tx_renamed")(contents)
        contents[4] = str(contents[4]).splitlines(keepends=True)[0]

    found = changed(tmp_path, change)
    lacking, history = found.warnings
    assert "lacks /proc/spl/kstat/zfs/zil, /proc/spl/kstat/taskq/zvol*, dmu_tx_wrlog_delay in /proc/spl" in lacking
    assert history == "zfs: no history of transaction groups is kept: the module's parameter zfs_txg_history is 0"
    assert not {"zil.commits", "zvol.tasks", "tx.log-delayed", "txg.count"} & found.totals().keys()
    assert found.totals()["tx.count"] > 0


def test_without_a_transaction_group_or_samples_there_are_no_numbers_of_any(tmp_path: Path) -> None:
    found = changed(tmp_path, replaced(4, " C ", " S "))
    assert found.totals()["txg.count"] == 0 and "txg.sync.mean" not in found.totals()
    assert found.warnings[0].endswith("came to an end in the measured phase, so there are no times of any")
    found = ZfsProbe().parse(record(tmp_path, HEAD + LOOKS[0]))
    assert (found.metrics.height, found.found) == (0, (TooFewSamples("zfs"),))


def test_queues_and_waits_are_means_over_the_intervals_of_the_measured_phase(tmp_path: Path) -> None:
    """Three intervals: the first begins before the window, and most of the last comes after it."""
    (tmp_path / iostat.NAME).write_bytes(LINES)
    found = ZfsProbe().parse(record(tmp_path)).totals()
    assert found["vdev.writes"] == 100 * 1 + 300 * 1
    assert found["vdev.write.total.wait.mean"] == pytest.approx((100 * 2e-3 + 300 * 6e-3) / 400)
    assert found["vdev.async-write.waiting.mean"] == 5 and found["vdev.async-write.active.mean"] == 2.5
    assert found["vdev.scrub.waiting.mean"] == 0
    assert not {"vdev.read.total.wait.mean", "vdev.scrub.wait.mean"} & found.keys(), "nothing waited there"


def test_what_zpool_printed_in_a_guest_is_read(tmp_path: Path) -> None:
    (tmp_path / iostat.NAME).write_bytes(IOSTAT)
    found = iostat.read(tmp_path, Window(0.0, 1e9))
    assert len(found.found) == IOSTAT.count(b"\n") - 1 and not found.warnings
    values = {each.metric: each.value for each in iostat.values(found)}
    assert values["vdev.writes"] > 0 and values["vdev.write.disk.wait.mean"] <= values["vdev.write.total.wait.mean"]


@pytest.mark.parametrize(
    ("printed", "said", "warning"),
    [
        (b"", b"", "it printed too little: choose a shorter interval"),
        (b"", b"0.000000 cannot open 'tank': no such pool\n", "cannot open 'tank': no such pool"),
    ],
)
def test_without_queues_a_warning_says_why(tmp_path: Path, printed: bytes, said: bytes, warning: str) -> None:
    (tmp_path / iostat.NAME).write_bytes(printed)
    (tmp_path / iostat.SAID).write_bytes(said)
    found = ZfsProbe().parse(record(tmp_path))
    assert found.warnings == (f"zfs: no lengths of queues from zpool iostat: {warning}",)
    assert not [name for name in found.totals() if name.startswith("vdev.")]


@pytest.mark.parametrize("line", [b"x tank\n", b"nan tank\n", b"1.0\n", b"1.0 tank\t1\n"])
def test_lines_of_no_interval_are_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / iostat.NAME).write_bytes(LINES + line)
    with pytest.raises(ParseError, match=r"zpool-iostat\.txt:5: "):
        ZfsProbe().parse(record(tmp_path))


names = st.from_regex(r"[a-z][a-z_0-9]{0,40}", fullmatch=True)


@given(st.dictionaries(names, st.integers(-(2**63), 2**64 - 1), max_size=5), st.integers(0, 2**63 - 1))
def test_counters_are_read_as_zfs_prints_them_and_cut_off_nowhere(numbers: dict[str, int], began: int) -> None:
    rows = "".join(f"{name:<31} {4:<4} {value}\n" for name, value in numbers.items())
    text = f"23 1 0x01 {len(numbers)} 48 {began} 9\n{'name':<31} {'type':<4} data\n{rows}"
    assert parse_counters(text, "x") == Counters(began, 9, numbers)
    for length in range(len(text)):
        with pytest.raises(ParseError, match=r"^x:\d+: "):
            parse_counters(text[:length], "x")


times = st.lists(st.integers(0, 2**40), min_size=4, max_size=4)
COLUMNS = "txg birth state ndirty nread nwritten reads writes otime qtime wtime stime"


@given(st.lists(st.tuples(st.sampled_from("OQSC"), st.integers(0, 2**40), times), min_size=2, max_size=5))
def test_transaction_groups_are_those_that_are_on_the_disk(rows: list[tuple[str, int, list[int]]]) -> None:
    lines = [f"{10 + at} 100 {row[0]} {row[1]} 0 7 0 3 {' '.join(map(str, row[2]))}\n" for at, row in enumerate(rows)]
    text = f"{COLUMNS}\n{''.join(lines)}"
    found = parse_transaction_groups(text, "x")
    expected = [(10 + at, dirty, (100 + sum(spans)) / 1e9) for at, (on, dirty, spans) in enumerate(rows) if on == "C"]
    assert [(each.number, each.dirty, each.ended) for each in found.committed] == expected
    assert parse_transaction_groups(f"23 0 0x01 1 0 5 9\n{text}", "x") == found, "as ZFS 0.6 begins it"
    for old, new, says in (("ndirty", "dirt", "x:1: has no column ndirty"), ("\n11 ", "\n10 ", "x:3: is not in the")):
        with pytest.raises(ParseError, match=says):
            parse_transaction_groups(text.replace(old, new), "x")


def histograms_of(raw: Path, what: str, before: str, after: str) -> Measurements:
    (raw / f"{what}-before.txt").write_text(before)
    (raw / f"{what}-after.txt").write_text(after)
    return ZfsProbe(histograms=True).parse(record(raw))


def test_what_came_between_two_looks_is_a_histogram_of_waits(tmp_path: Path) -> None:
    """Twice as much at the second look: as much came in between as there was at the first."""
    rows = [line.split("\t") for line in WAITS.splitlines()]
    doubled = "\n".join("\t".join([row[0], *(str(2 * int(word)) for word in row[1:])]) for row in rows)
    found = histograms_of(tmp_path, "waits", WAITS, doubled)
    writes = found.histograms.filter(metric="vdev.write.total.wait")
    counts = {int(row[0]): int(row[2]) for row in rows if len(row) > 1}
    assert writes["count"].sum() == sum(counts.values()) > 0
    assert {round(lower * 1e9): count for lower, count in writes.select("lower", "count").iter_rows()} == {
        (bound + 1) // 2: count for bound, count in counts.items() if count
    }
    assert 0.008 < found.totals()["vdev.write.total.wait.p50"] < 0.034
    assert "vdev.scrub.wait.p50" not in found.totals()


def test_the_share_of_aggregated_requests_is_of_those_at_the_disks(tmp_path: Path) -> None:
    zero = "\n".join(line.partition("\t")[0] + "\t0" * 14 if "\t" in line else line for line in SIZES.splitlines())
    totals = histograms_of(tmp_path, "sizes", zero, SIZES).totals()
    assert totals["vdev.async-write.aggregated.share"] == pytest.approx(112 / (548 + 112))
    assert totals["vdev.sync-write.aggregated.share"] == 0
    assert "vdev.scrub.aggregated.share" not in totals


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (WAITS, "\ntank\n1\t2\n", "waits-after.txt:3: is no line of a histogram"),
        ("1" + "\t0" * 11, WAITS, "waits-before.txt:1: is no line of a histogram"),
        (WAITS, WAITS.replace("\n3\t", "\n4\t"), "waits-after.txt:4: has a bin that is no power of two"),
        (WAITS, WAITS.replace("\t17\t", "\t1\t"), "a count ran backwards: the pool was imported again"),
    ],
)
def test_damaged_histograms_are_refused(tmp_path: Path, before: str, after: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        histograms_of(tmp_path, "waits", before, after)


WAYS = [f"{way}.{stage}" for stage in ("total", "disk", "sync-queue", "async-queue") for way in ("read", "write")]
NUMBERS = st.integers(0, 2**63 - 1)
ROW = "tank 1 2 3 4 5 6 - 2000 - 500 - - - 1500 - - - 0 0 0 0 0 0 7 3 0 0 0 0 0 0".replace(" ", "\t")


def test_a_line_of_zfs_2_3_has_waits_where_something_waited_and_all_queues() -> None:
    look = parse_pool_look(ROW, "x")
    assert (look.pool, look.operations) == ("tank", {"read": 3, "write": 4})
    assert look.waits == pytest.approx({"write.total": 2e-6, "write.disk": 5e-7, "write.async-queue": 1.5e-6})
    assert (look.waiting["async-write"], look.active["async-write"]) == (7, 3)
    assert [*look.waiting] == [*look.active] == [*QUEUES]


@given(st.integers(1, 3), st.data(), st.from_regex(r"[A-Za-z][\w .:-]{0,30}", fullmatch=True))
def test_columns_of_each_version_are_read_and_any_other_number_of_them_is_refused(
    maintained: int, data: st.DataObject, pool: str
) -> None:
    usage, lengths = (data.draw(st.lists(NUMBERS, min_size=n, max_size=n)) for n in (6, 2 * (4 + maintained)))
    times = data.draw(st.lists(st.none() | NUMBERS, min_size=8 + maintained, max_size=8 + maintained))
    words = [*map(str, usage), *("-" if each is None else str(each) for each in times), *map(str, lengths)]
    queues = QUEUES[: 4 + maintained]
    named = dict(zip([*WAYS, *MAINTENANCE[:maintained]], times, strict=True))
    assert parse_pool_look("\t".join([pool, *words]), "x") == PoolLook(
        pool,
        {"read": usage[2], "write": usage[3]},
        {name: time / 1e9 for name, time in named.items() if time is not None},
        dict(zip(queues, lengths[::2], strict=True)),
        dict(zip(queues, lengths[1::2], strict=True)),
    )
    for some in (words[:-1], [*words, "0"], []):
        with pytest.raises(ParseError, match=rf"^x:7: has {len(some) + 1} columns"):
            parse_pool_look("\t".join([pool, *some]), "x", 7)


@pytest.mark.parametrize("number", ["", "1.5", "-1", "1K", "٣", "9" * 21])
def test_what_is_no_whole_number_is_refused(number: str) -> None:
    with pytest.raises(ParseError, match="has a value that is not a whole number"):
        parse_pool_look(re.sub(r"\t7\t", f"\t{number}\t", ROW), "x")
