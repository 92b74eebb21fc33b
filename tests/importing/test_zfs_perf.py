"""``storlab import zfs-perf``: folders of the ZFS Test Suite's tests/perf, with old names of files and new ones."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from storlab import open_run
from storlab.base.errors import ParseError
from storlab.tools.zfs_perf import mean_of, parse_config, parse_zpool_iostat
from study.program import call

from . import taken

GOLDEN = Path(__file__).parents[1] / "formats" / "fio" / "golden"
RESULT = (GOLDEN / "fio-plain.json").read_text()
IOSTAT = (Path(__file__).parent / "zfs-perf" / "zpool.iostat").read_text()
NEW = "sync.8k-ios.16-threads.1-filesystems"

pytestmark = pytest.mark.usefixtures("here")


def result(at: int) -> str:
    read = json.loads(RESULT)
    for key, each in (("timestamp", 60), ("timestamp_ms", 60_000)):
        read[key] += at * each
    return json.dumps(read)


def laid(folder: str, **files: str) -> Path:
    path = Path(folder) / "perf_data"
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_names_say_which_cell_a_result_is_of_and_folders_are_rounds() -> None:
    for number in (1, 2):
        laid(
            f"run{number}",
            **{
                f"random_reads.fio.{NEW}": result(10 * number),
                "sequential_writes.ksh.fio.async.1m-ios.32-threads.4-filesystems": result(10 * number + 3),
                "random_readwrite.fio.sync.bssplit-ios.64-threads.1-filesystems": result(10 * number + 6),
            },
        )
    ran = taken("zfs-perf", "run1", "run2")
    assert "6 trials of 3 cells" in ran.output
    trials = open_run("run").trials
    assert {name for name in trials.columns if name.startswith("factor.")} == {
        f"factor.{name}" for name in ("test", "io", "size", "threads", "filesystems")
    }
    assert trials.filter(pl.col("factor.test") == "sequential_writes").select("factor.io", "factor.size").rows() == [
        ("async", "1m"), ("async", "1m")
    ]  # fmt: skip
    assert sorted(trials["round"].to_list()) == [1, 1, 1, 2, 2, 2]


def test_names_up_to_zfs_0_7_have_no_number_of_file_systems() -> None:
    laid("old", **{f"random_reads.fio.sync.8k-ios.{threads}-threads": result(threads) for threads in (16, 64)})
    taken("zfs-perf", "old")
    assert open_run("run").trials["factor.threads"].to_list() == ["16", "64"]
    assert "factor.filesystems" not in open_run("run").trials.columns


def test_a_name_without_its_test_is_warned_of_unless_its_folder_says_it() -> None:
    laid("lost", **{f".fio.{NEW}": result(1)})
    ran = taken("zfs-perf", "lost")
    assert "File names lack their test: some versions of the suite, such as 2.3.2," in ran.message
    laid("output/perf/random_reads", **{f".fio.{NEW}": result(1)})
    laid("output/perf/random_writes", **{f".fio.{NEW}": result(2)})
    ran = call("import", "zfs-perf", "output", "--out", "kept")
    assert ran.status == 0 and "lack their test" not in ran.message
    assert open_run("kept").trials["factor.test"].to_list() == ["random_reads", "random_writes"]


def test_a_folder_says_its_test_also_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(laid("output/perf/random_reads", **{f".fio.{NEW}": result(1)}))
    ran = call("import", "zfs-perf", ".", "--out", str(tmp_path / "kept"))
    assert ran.status == 0 and "lack their test" not in ran.message


def test_what_lies_beside_a_result_is_kept_and_read() -> None:
    laid(
        "one",
        **{
            f"random_reads.fio.{NEW}": result(1),
            f"random_writes.fio.{NEW}": result(2),
            f"random_reads.zpool.iostat.{NEW}": IOSTAT,
            f"random_reads.vmstat.{NEW}": "procs",
            "config.json": '{"ncpus": "2", "kernel version": "Linux 6.12", "tunables": {"zfs_txg_timeout": "5"}}',
        },
    )
    ran = taken("zfs-perf", "one")
    assert "not read" not in ran.message
    metrics = open_run("run").metrics.filter(pl.col("job").is_null(), trial=1)
    assert metrics.filter(metric="pool.write.iops")["value"].to_list()[0] == 40.0
    assert metrics.filter(metric="pool.write.wait")["value"].to_list()[0] == pytest.approx(3.5e-6)
    kept = {path.name for path in Path("run/trials").rglob("*") if path.is_file()}
    assert {f"random_reads.zpool.iostat.{NEW}", f"random_reads.vmstat.{NEW}", "config.json"} <= kept
    assert "Linux 6.12" in call("report", "run", "--format", "md", "--full").output
    shutil.rmtree("run/tables")  # derived again from what is kept
    assert call("report", "run").status == 0
    again = open_run("run").metrics.filter(pl.col("job").is_null(), trial=1)
    assert again.filter(metric="pool.write.iops")["value"].to_list()[0] == 40.0


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"results.json": RESULT}, "one/perf_data/results.json: tests/perf names results TEST.fio.SYNC.SIZE-ios"),
        ({"config.json": "{}"}, "one: none of its 1 file is one of zfs-perf"),
        ({f"random_reads.fio.{NEW}": "{"}, "one: none of its 1 file is one of zfs-perf"),
    ],
)
def test_what_is_none_of_tests_perf_is_refused_with_its_place(files: dict[str, str], said: str) -> None:
    laid("one", **files)
    ran = call("import", "zfs-perf", "one", "--out", "run")
    assert ran.status == 2 and said in ran.message and not Path("run").exists()


def test_what_is_damaged_beside_a_result_is_left_out_with_a_warning() -> None:
    files = {f"random_reads.fio.{NEW}": result(1), "config.json": "{", f"random_reads.zpool.iostat.{NEW}": "no pool"}
    laid("one", **files)
    said = taken("zfs-perf", "one").message
    assert "config.json: is not JSON" in said and "its headings are missing: it is left out" in said


def test_columns_of_zpool_iostat_are_told_by_their_headings() -> None:
    intervals = parse_zpool_iostat(IOSTAT, "x")
    assert [each.pool for each in intervals] == ["perfpool", "perfpool"]
    assert "asyncq_wait read" not in intervals[0].numbers and mean_of(intervals, "bandwidth read") == 6144
    assert mean_of(intervals, "total_wait write", "operations write") == 3500
    assert mean_of(intervals, "trim wait") is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("perfpool  1 ", "perfpool  x ", "x:4: 'x' is not a number as `zpool iostat -p` prints it"),
        ("perfpool  1 ", "perfpool ", "x:4: has 16 numbers under 17 headings"),
        ("operations", "", "x:2: has headings of `zpool iostat` that do not match each other"),
        ("pool     ", "tank     ", "x:1: is no output of `zpool iostat`"),
    ],
)
def test_damage_in_zpool_iostat_is_named_with_its_line(old: str, new: str, said: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_zpool_iostat(IOSTAT.replace(old, new), "x")
    assert str(error.value).startswith(said)


def test_a_configuration_that_is_no_table_is_refused() -> None:
    for text in (b"[]", b"{", b"\xff"):
        with pytest.raises(ParseError):
            parse_config(text, "x")
