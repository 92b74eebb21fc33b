"""Block requests by length and alignment, counted for real: on this machine, in guests, and below these."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Ended, Laboratory, opened
from laboratory.block import small_ext4_blocks
from laboratory.guests import DISK as GUESTS_DISK
from laboratory.guests import EXT4, guests
from laboratory.samples import sample
from laboratory.studies import directory
from storlab.analysis.summary import BlockIO, Summary, from_json
from storlab.probes.subject import read_subject
from storlab.records.derive import derive
from storlab.report.language.say import said as told
from study.program import call

pytestmark = pytest.mark.needs("root")

LOADS = ("storm", "storm-fsync", "database", "fio-files")
SMALL = ("files=1500", "synced=150", "pages=2M", "data=16M", "redo=64k", "size=2G", f"loads={json.dumps(LOADS)}")
SET_UPS = ("xfs-16k-16k", "ext4-bigalloc", "ext4-16k")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended]]:
    """Two rounds of three set-ups under all loads of the study ``alignment``, small."""
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab:
        options = [word for value in (*SMALL, f"scratch={lab.scratch}") for word in ("--set", value)]
        only = ("--only", f"fs={','.join(SET_UPS)}", "--rounds", "2", "--out", lab.out)
        yield lab, lab.storlab("run", "alignment", *options, *only, timeout=400)


@pytest.fixture(scope="module")
def summary(ran: tuple[Laboratory, Ended]) -> Summary:
    lab, ended = ran
    assert ended.status == 0, str(ended)
    return from_json((lab.out / "summary.json").read_bytes())


def writes(summary: Summary) -> dict[tuple[str, str], BlockIO]:
    """By set-up and load."""
    rows = [row for row in summary.block_io if row.operation == "write"]
    return {(row.levels["fs"], row.levels["load"]): row for row in rows}


def below_16k(row: BlockIO) -> float:
    """The share of requests that are not whole units of 16k."""
    share = next(share.requests for share in row.units if share.unit == 16384)
    assert share is not None
    assert row.below is not None
    assert sum(kind.requests.mean for kind in row.below) == pytest.approx(1 - share.mean)
    assert share.high < 1 if row.below else (share.low, share.high) == (1.0, 1.0)
    return 1 - share.mean


@pytest.mark.parametrize("load", LOADS)
def test_xfs_on_sectors_of_16k_writes_whole_16k_and_ext4_goes_below(summary: Summary, load: str) -> None:
    """Who goes below 16k is measured here, and not known beforehand."""
    xfs, ext4 = (writes(summary)[set_up, load] for set_up in SET_UPS[:2])
    assert xfs.requests > 0
    assert below_16k(xfs) == 0 < below_16k(ext4)


@small_ext4_blocks
def test_blocks_that_this_kernel_does_not_have_are_unsupported_with_the_reason(summary: Summary) -> None:
    states = [state for state in summary.cells if state.levels["fs"] == "ext4-16k"]
    assert {state.status for state in states} == {"unsupported"}
    assert all("EXT4-fs: bad block size 16384" in " ".join(state.reasons) for state in states)


@pytest.mark.parametrize("set_up", SET_UPS[:2])
def test_every_trial_of_a_load_writes_the_same_bytes(ran: tuple[Laboratory, Ended], set_up: str) -> None:
    rows = ran[0].run_folder.metrics.filter(
        pl.col("node").is_null(), pl.col("job").is_null(), pl.col("source").is_in(LOADS), metric="write.bytes"
    )
    trials = ran[0].run_folder.trials.rename({"factor.fs": "fs"}).select("trial", "fs")
    of_set_up = rows.join(trials, on="trial").filter(fs=set_up)
    assert dict(of_set_up["source"].value_counts().iter_rows()) == dict.fromkeys(LOADS, 2)
    assert of_set_up.group_by("source").agg(pl.col("value").n_unique())["value"].to_list() == [1] * len(LOADS)


def test_what_is_really_written_for_each_byte_is_known_of_every_load(summary: Summary) -> None:
    found = {(e.levels["fs"], e.levels["load"]) for e in summary.estimates if e.metric == "write.amplification"}
    assert found == {(set_up, load) for set_up in SET_UPS[:2] for load in LOADS}
    at_least_one = [e.mean for e in summary.estimates if e.metric == "write.amplification"]
    assert min(at_least_one) > 0.99  # all is written back within the trial


def test_the_summary_says_by_which_hook_of_the_kernel_it_was_counted_and_why(summary: Summary) -> None:
    probes = summary.facts["probes"]
    assert isinstance(probes, list)
    (told,) = probes
    assert (told["probe"], told["nodes"]) == ("alignment", ["host"])
    assert told["hook"] == ("tp_btf" if Path("/sys/kernel/btf/vmlinux").exists() else "classic tracepoint")
    assert told["why"]


def test_the_report_has_it_in_words_and_pictures(ran: tuple[Laboratory, Ended]) -> None:
    lab, ended = ran
    assert ended.status == 0 and "More: " in ended.stdout
    assert "Writes below 16k: load=storm" in call("report", str(lab.out), "--full").output
    assert '<section id="block"' in (lab.out / "report.html").read_text()
    assert (lab.out / "charts" / "block-writes-load-storm-alignments.png").is_file()


WRITES = 700
LENGTH = 16384
LOAD = f'rw = "randwrite", bs = "16k", size = "32M", direct = 1, ioengine = "psync", number_ios = {WRITES}'
DISK = '[{ layer = "file", size = "64M" }, { layer = "loop" }]'
XFS = '[{ layer = "file", size = "320M" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]'


def counted(
    lab: Laboratory, stack: str, load: str, trial: str = ""
) -> tuple[Counter[int], dict[tuple[str, str], float]]:
    """One trial of a load, watched by ``alignment`` and ``host-load``.

    By length, the requests that wrote data, and not the file system's own; and metrics by their source and name.
    """
    text = directory(f"fio = {{ {load} }}", trial=trial).replace('[{ layer = "directory" }]', stack)
    text = text.replace("[probes]", "[probes]\nalignment = {}\nhost-load = {}\n")
    lab.succeed(text.replace("settle = { sync = false, drop_caches = false }, ", ""))
    requests = derive(lab.run_folder).frame("requests")
    meta = pl.col("flags").str.split("+").list.contains("meta")
    sums = requests.filter(pl.col("operation") == "write", ~meta).group_by("length").agg(pl.col("count").sum())
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), pl.col("job").is_null())
    metrics = {(source, metric): v for source, metric, v in found.select("source", "metric", "value").iter_rows()}
    return Counter(dict(sums.select("length", "count").iter_rows())), metrics


def test_on_a_disk_every_write_of_the_load_is_counted_and_none_of_what_went_before(lab: Laboratory) -> None:
    prepare = '[["dd", "if=/dev/zero", "of={target}", "bs=64k", "count=50", "oflag=direct", "status=none"]]'
    before = '{ fio = { rw = "write", bs = "4k", size = "2M", direct = 1, ioengine = "psync" } }'
    writes, metrics = counted(lab, DISK, LOAD, f"prepare = {prepare}, precondition = {before}")
    assert writes == {LENGTH: WRITES}
    assert metrics["probe:alignment", "write.requests"] == WRITES
    assert metrics["storage", "write.amplification"] == 1.0


def test_files_that_fio_lays_out_before_are_not_counted(lab: Laboratory) -> None:
    writes, _ = counted(lab, XFS, f"{LOAD}, overwrite = 1")
    assert writes == {LENGTH: WRITES}


def test_a_warm_up_is_among_the_counts_and_no_amplification_is_made_of_it(lab: Laboratory) -> None:
    load = LOAD.replace(f"number_ios = {WRITES}", 'rate_iops = 200, runtime = "1s", time_based = true')
    _, found = counted(lab, DISK, load, 'warm_up = "500ms"')
    assert found["probe:alignment", "write.requests"] > found["load", "write.ios"]
    assert ("storage", "write.amplification") not in found


MIB = 1024 * 1024
STORE = sample(__file__, "cases/store-with-probes.toml")


def written(stack: str, rest: str, **keys: str) -> str:
    """A study of guests in each of which fio writes 4M in pieces of 16k."""
    text = guests("", stack=stack, **keys).replace('"elapsed"', '"write.aligned.16k"')  # type: ignore[arg-type]
    fio = 'fio = { rw = "write", bs = "16k", size = "4M", direct = 1, ioengine = "psync" }\n'
    return text[: text.index("command = ")] + fio + rest


@pytest.fixture(scope="module")
def both_ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """Requests counted in each guest's kernel, and at the other end on the node that has their disks."""
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab:
        lab.execute(written(EXT4, STORE, from_='"store"'))
        yield lab


def metrics_of(lab: Laboratory) -> pl.DataFrame:
    return pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("job").is_null())


def one(rows: pl.DataFrame, **where: str) -> float:
    (value,) = rows.filter(pl.col("node").is_null(), **where)["value"].to_list()
    return float(value)


@pytest.mark.needs("guests")
def test_each_end_has_numbers_of_its_own(both_ends: Laboratory) -> None:
    rows = metrics_of(both_ends)
    assert one(rows, source="probe:alignment", metric="write.bytes") >= 2 * 4 * MIB
    assert one(rows, source="probe:alignment@store", metric="write.bytes") >= 2 * 4 * MIB
    nodes = rows.filter(pl.col("node").is_not_null(), metric="stall.longest").select("source", "node").rows()
    assert {(source, node) for source, node in nodes if source != "load"} == {
        ("probe:stalls", "vm-1"),
        ("probe:stalls", "vm-2"),
        ("probe:stalls@store", "store"),
    }
    raw = both_ends.out / "trials" / "0001"
    guest, store = (read_subject(raw / node / "probe-alignment") for node in ("vm-1", "store"))
    assert (guest.end, guest.group, guest.disks) == ("load", "vm", ("vdc",))
    assert (store.end, store.above) == ("below", ("vm-1", "vm-2"))


@pytest.mark.needs("guests")
def test_what_guests_and_their_host_did_is_never_added_up(both_ends: Laboratory) -> None:
    rows = metrics_of(both_ends)
    of_machines = rows.filter(pl.col("source").str.starts_with("probe:host-load"), pl.col("node").is_not_null())
    where = {(source, node) for source, node in of_machines.select("source", "node").iter_rows()}
    assert where == {("probe:host-load", "vm-1"), ("probe:host-load", "vm-2"), ("probe:host-load@host", "host")}
    for name in ("disk.target.bytes_written", "cpu.idle"):
        mine = of_machines.filter(source="probe:host-load", metric=name)["value"]
        together = mine.sum() if name.startswith("disk") else mine.mean()
        assert one(rows, source="probe:host-load", metric=name) == pytest.approx(together)
    (host,) = of_machines.filter(source="probe:host-load@host", metric="cpu.idle")["value"].to_list()
    assert one(rows, source="probe:host-load@host", metric="cpu.idle") == host


@pytest.mark.needs("guests")
def test_what_is_written_beneath_is_for_each_byte_above(both_ends: Laboratory) -> None:
    rows = metrics_of(both_ends)
    written = one(rows, source="backing@store", metric="backing.write.bytes")
    asked = one(rows, source="load", metric="write.bytes")
    assert asked == 2 * 4 * MIB
    assert one(rows, source="backing@store", metric="write.amplification.backing") == written / asked
    assert one(rows, source="storage", metric="write.amplification") > 0
    cpus = one(rows, source="probe:processes@host", metric="guests.cpu")
    each = [one(rows, source="probe:processes@host", metric=f"guest.vm-{number}.cpu") for number in (1, 2)]
    assert cpus == pytest.approx(sum(each))
    assert min(each) > 0


@pytest.mark.needs("guests")
def test_each_guest_counts_its_own_disk_with_btf(both_ends: Laboratory) -> None:
    lab = both_ends
    (record,) = lab.records()
    assert (record.status, record.reason) == ("done", None)
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet").filter(source="probe:alignment")
    big = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    assert dict(big.group_by("node").agg(pl.col("count").sum()).iter_rows()).keys() == {"vm-1", "vm-2"}
    assert big["count"].sum() >= 2 * 256, "fio wrote 4M in pieces of 16k in each"
    for node in ("vm-1", "vm-2"):
        raw = lab.out / "trials" / "0001" / node / "probe-alignment"
        assert any(b'"hook":"btf"' in file.read_bytes() for file in raw.iterdir())


SHIFTED = guests(
    "fio --name=x --filename=/dev/dm-0 --rw=write --bs=16k --size=4M --direct=1 >&2 && dmsetup remove moved",
    count="1",
    stack=GUESTS_DISK,
    trial="prepare = [['sh', '-c', \"modprobe dm-mod; dmsetup create moved --table '0 65536 linear {target} 2049'\"]]",
    rest='[probes.alignment]\ndisks = ["dm-0", "vdc"]',
)


@pytest.mark.needs("guests")
def test_a_device_mapper_disk_has_whole_units_and_the_disk_beneath_what_became_of_them(lab: Laboratory) -> None:
    """It is gone when the counts are read, and keeps its name."""
    summary = lab.execute(SHIFTED, unconfined=True).summary
    (record,) = lab.records()
    assert (record.status, record.reason, record.nodes["vm"].disks) == ("done", None, ["vdc"])
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet")
    writes = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    aligned = (pl.col("offset_alignment") == 0) | (pl.col("offset_alignment") >= 16384)
    seen = writes.group_by("disk").agg(pl.col("count").sum(), pl.col("count").filter(aligned).sum().alias("aligned"))
    assert sorted(seen.rows()) == [("dm-0", 256, 256), ("vdc", 256, 0)]
    said = " ".join(told(summary.warnings))
    assert "dm-0 makes no requests of its own" in said
    assert "dm-0 lies on vdc, and both are watched" in said


@pytest.mark.needs("zfs")
def test_a_zvol_which_makes_no_requests_has_its_bios_counted(lab: Laboratory) -> None:
    volume = '{ layer = "zpool" }, { layer = "zvol", size = "64M", volblocksize = "16k" }'
    stack = f'[{{ layer = "file", size = "512M" }}, {{ layer = "virtio-blk" }}, {volume}]'
    summary = lab.execute(written(stack, "[probes.alignment]\n", count="1", memory='"512M"')).summary
    (record,) = lab.records()
    assert (record.status, record.reason, record.nodes["vm"].disks) == ("done", None, ["zd0"])
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet").filter(pl.col("operation") == "write")
    assert requests.group_by("disk", "length").agg(pl.col("count").sum()).rows() == [("zd0", 16384, 256)]
    assert any("zd0 makes no requests of its own" in warning for warning in told(summary.warnings))
