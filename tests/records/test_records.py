"""Records of a real run: derived again they are the same, damaged they are named, and they are as documented."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import storlab
from laboratory import Laboratory, opened
from laboratory.studies import directory
from storlab.base.errors import RecordsError
from storlab.base.limits import JOURNAL_LINE
from storlab.findings import Reported
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.records.derive import derive
from storlab.records.derive_trial import Done, derive_trials
from storlab.records.files import copy_durably
from storlab.records.run_folder import TABLES, RunFolder, unreadable
from storlab.records.tables import (
    COLUMNS,
    PLACES,
    ExaminedSeries,
    Observed,
    Tables,
    findings_frame,
    probe_facts,
    remarks_on,
    together,
)
from storlab.report.language.say import say
from storlab.run.recovery.journal import Journal, read_pending
from storlab.timeseries.findings import SeriesFindings, findings

NODE = NodeIdentity("host", "local", "", Machine("m", "b"))
FIO = 'fio = { rw = "randwrite", bs = "{bs}", ioengine = "psync", size = "256k" }'
VERIFY = 'verify = [["test", "{bs}", "!=", "8k"]]'
STUDY = directory(FIO, rounds=2, trial=VERIFY, rest='[factors]\nbs = ["4k", "8k"]')
DOCUMENT = Path(storlab.__file__).parent.parent.parent / "docs" / "reference" / "records.md"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One run for all tests here: two trials done, two failed."""
    with opened(Laboratory(tmp_path_factory.mktemp("records"))) as lab:
        lab.execute(STUDY)
        yield lab.out


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def documented() -> dict[str, dict[str, str]]:
    """Table → column → type, as the documentation's tables say."""
    found: dict[str, dict[str, str]] = {}
    for section in DOCUMENT.read_text().split("\n## tables/")[1:]:
        name = section.partition(".parquet")[0]
        columns: dict[str, str] = {}
        for row in re.findall(r"^\| `.*", section, re.MULTILINE):
            cells = [cell.strip() for cell in row.split("|")[1:-1]]
            columns |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1])
        found[name] = columns
    return found


def test_trials_derived_at_once_have_the_rows_that_each_has_by_itself(original: Path) -> None:
    run = RunFolder.open(original)
    at_once = derive(run)
    alone = Tables(at_once.cells, at_once.factors)
    for record in at_once.records:
        alone.records.append(record)
        if record.status == "done":
            trial = Done(run.trial_folder(record.trial), record, at_once.cells[record.cell])
            alone.add(derive_trials([trial]), {})
    assert len(alone.parts) == 2
    for name in TABLES:
        assert_frame_equal(at_once.frame(name), alone.frame(name), check_exact=True)
    assert at_once.warnings() == alone.warnings()


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_exactly_the_columns_that_are_documented(original: Path, name: str) -> None:
    frame: pl.DataFrame = getattr(storlab.open_run(original), name)
    documents = documented()
    columns = {("factor.bs" if column == "factor.NAME" else column): kind for column, kind in documents[name].items()}
    assert set(frame.columns) == set(columns)
    everywhere = documents["trials"] | documents["metrics"]
    for column, dtype in frame.schema.items():
        kind = columns[column] or everywhere[column]
        assert str(dtype).replace("time_unit=", "").replace("time_zone=", "").replace("'", "") == kind, column


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("requests", "checks", "findings")])
def test_a_trial_is_in_the_tables_that_every_workload_fills_with_its_keys(original: Path, name: str) -> None:
    run = storlab.open_run(original)
    keys = {(record.trial, record.round, record.cell) for record in run.records() if record.status == "done"}
    frame: pl.DataFrame = getattr(run, name)
    if name == "trials":
        frame = frame.filter(status="done")
    assert set(frame.select("trial", "round", "cell").iter_rows()) == keys
    assert len(keys) == 2


def test_a_report_on_an_old_run_gives_the_same_summary(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Laboratory(run.parent)
    written = orjson.loads((run / "summary.json").read_bytes())
    shutil.rmtree(run / "tables")
    (run / "summary.json").unlink()
    result = lab.storlab("report", run, "--format", "json")
    assert result.status == 0, str(result)
    assert _same(orjson.loads(result.stdout), written)


def _same(report: object, summary: dict[str, object]) -> bool:
    """Whether the report holds the summary's estimates, wherever it holds them."""
    text = orjson.dumps(report, option=orjson.OPT_SORT_KEYS).decode()
    return all(orjson.dumps(part, option=orjson.OPT_SORT_KEYS).decode() in text for part in summary.values())


def damage(run: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    path = run / name
    path.write_bytes(change(path.read_bytes()))
    return path


HALF: Callable[[bytes], bytes] = lambda data: data[: len(data) // 2]  # noqa: E731
DAMAGES = [HALF, lambda data: b"", lambda data: b"[]", lambda data: b'{"format": 3}', lambda data: b"\xff\xfe"]


@pytest.mark.parametrize("change", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "trials/0001/trial.json"])
def test_a_damaged_record_is_named(run: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = damage(run, name, change)
    with pytest.raises(RecordsError, match=re.escape(str(path))):
        derive(RunFolder.open(run))


def test_a_damaged_line_of_the_journal_is_named_and_nothing_is_taken_down(run: Path) -> None:
    path = run / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b'{"registered": 3, "node"', *lines[2:]]))
    before = path.read_bytes()
    result = Laboratory(run.parent).storlab("clean", run)
    assert result.status == 2
    assert f"{path}:3 is damaged" in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_a_line_of_the_journal_that_a_power_cut_tore_is_as_if_it_were_not_there(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        kept = journal.register(NODE, "file.remove", {"path": "/a"})
        journal.register(NODE, "file.remove", {"path": "/b"})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:length])
    assert read_pending(path) == [kept]
    with Journal(path) as journal:
        assert journal.register(NODE, "file.remove", {"path": "/c"}).number == 2
    assert [entry.arguments["path"] for entry in read_pending(path)] == ["/a", "/c"]


def test_what_is_set_up_together_is_announced_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "journal.jsonl", list[int]()
    real = os.fdatasync
    with Journal(path) as journal:

        def sync(file: int) -> None:
            synced.append(path.read_bytes().count(b"\n"))
            real(file)

        monkeypatch.setattr(os, "fdatasync", sync)
        made = journal.register_all(NODE, [("file.remove", {"path": "/a"}), ("loop.detach", {"file": "/a"})])
        assert ([entry.number for entry in made], synced) == ([1, 2], [2])
        with pytest.raises(RecordsError):
            journal.register_all(NODE, [("file.remove", {"path": "/b"}), ("file.remove", {"path": "/" * JOURNAL_LINE})])
    assert read_pending(path) == made


def test_a_trial_whose_raw_files_are_damaged_is_named_in_a_warning_and_the_others_stay(run: Path) -> None:
    trial = next(record.trial for record in RunFolder.open(run).records() if record.status == "done")
    damage(run, f"trials/{trial:04d}/host/load/fio.json", HALF)
    tables = derive(RunFolder.open(run))
    assert len(tables.records) == 4
    assert any(f"trial {trial}: raw records cannot be read" in say(warning) for warning in tables.warnings())
    assert tables.frame("metrics")["trial"].n_unique() == 1


def test_two_processes_on_one_run_are_kept_apart(original: Path) -> None:
    run, other = RunFolder.open(original), RunFolder.open(original)
    with run.lock(), pytest.raises(RecordsError, match=r"is in use by process \d+"), other.lock():
        pass
    with other.lock():
        pass


def test_what_is_no_run_or_of_another_format_is_said_to_be_so(tmp_path: Path, run: Path) -> None:
    with pytest.raises(RecordsError, match="does not exist"):
        storlab.open_run(tmp_path / "missing")
    with pytest.raises(RecordsError, match="is not a run: it has no manifest"):
        storlab.open_run(tmp_path)
    damage(run, "manifest.json", lambda data: data.replace(b'"format": 3', b'"format": 2'))
    with pytest.raises(RecordsError, match="another version of Storlab"):
        storlab.open_run(run)


WRONG = [
    ("manifest.json", ("seed",), "7", "seed: expected `int`, got `str`"),
    ("manifest.json", ("rounds",), [0, 2], "rounds[0]: expected `int` >= 1"),
    ("manifest.json", ("started",), "yesterday", "started: invalid RFC3339 encoded datetime"),
    ("manifest.json", ("nodes", "host", "kernel"), "6.1", "nodes.host.kernel: expected `object | null`, got `str`"),
    ("manifest.json", ("plan", "cells"), [{}], "plan.cells[0]: object missing required field `cell`"),
    ("manifest.json", ("imported",), {"kind": "fio"}, "imported: object missing required field `files`"),
    ("manifest.json", ("block",), 1, "object contains unknown field `block`"),
    ("trials/0001/trial.json", ("status",), "well", "status: invalid enum value 'well'"),
    ("trials/0001/trial.json", ("nodes", "host", "start"), None, "nodes.host.start: expected `float`, got `null`"),
    ("trials/0001/trial.json", ("phases", "measure"), -1, "phases.measure: expected `float` >= 0.0"),
    ("trials/0001/trial.json", ("guests", "vm-1"), [], "guests.vm-1: expected `object`, got `array`"),
]


@pytest.mark.parametrize(("name", "place", "value", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_key(
    run: Path, name: str, place: tuple[str, ...], value: object, said: str
) -> None:
    fields = inner = orjson.loads((run / name).read_bytes())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (run / name).write_bytes(orjson.dumps(fields))
    with pytest.raises(RecordsError, match=re.escape(f"{run / name} is damaged: {said}")):
        derive(RunFolder.open(run))


@pytest.mark.parametrize("change", [HALF, lambda data: b"", lambda data: b"PAR1"])
def test_a_damaged_table_is_named_with_the_remedy(run: Path, change: Callable[[bytes], bytes]) -> None:
    path = damage(run, "tables/series.parquet", change)
    with pytest.raises(RecordsError, match=f"{re.escape(str(path))}: .*storlab report"):
        _ = storlab.open_run(run).series


def test_a_table_that_is_missing_and_a_record_that_does_not_fit_are_named(run: Path) -> None:
    path = run / "trials" / "0001" / "trial.json"
    record = path.read_bytes()
    damage(run, "trials/0001/trial.json", lambda data: data.replace(b'"trial": 1,', b'"trial": 2,'))
    with pytest.raises(RecordsError, match=f"{re.escape(str(path))} is damaged: trial: 2 in the folder of another"):
        derive(RunFolder.open(run))
    path.write_bytes(re.sub(rb'"cell": \d+', b'"cell": 7', record))
    with pytest.raises(RecordsError, match=f"{re.escape(str(path))} is damaged: cell: the study has no cell 7"):
        derive(RunFolder.open(run))
    (run / "tables" / "series.parquet").unlink()
    with pytest.raises(RecordsError, match="storlab report"):
        _ = storlab.open_run(run).series


def test_a_failed_trial_keeps_its_reason_and_what_its_command_said(original: Path) -> None:
    failed = [record for record in RunFolder.open(original).records() if record.status == "failed"]
    assert {record.levels["bs"] for record in failed} == {"8k"}
    assert all(record.reason == "verify: node host: test ended with status 1: no output" for record in failed)
    assert all(record.detail.startswith("$ test 8k '!=' 8k") for record in failed)


def stepped() -> ExaminedSeries:
    values = np.random.default_rng(1).normal(100, 1, 400)
    values[200:] += 20
    found = findings(np.arange(1.0, 401.0), values)
    assert found is not None
    place = {"trial": 3, "round": 2, "cell": 1, "node": None, "source": "load"}
    return ExaminedSeries(place, "iops", "1/s", found)


def test_what_is_found_in_series_is_a_table_with_changes_as_rows_within_rows() -> None:
    names = [field.name for field in fields(SeriesFindings)]
    assert set(COLUMNS["findings"]) == {*PLACES, "metric", "unit", *names}
    (row,) = findings_frame([stepped()]).iter_rows(named=True)
    assert {name: row[name] for name in names if name != "changes"} == {
        name: value for name, value in vars(stepped().found).items() if name != "changes"
    }
    assert (row["trial"], row["round"], row["node"], row["unit"]) == (3, 2, None, "1/s")
    (change,) = findings_frame([stepped()])["changes"][0].to_list()
    assert change["t"] == 200.0
    assert change["after"] - change["before"] > 19
    assert findings_frame([]).schema == COLUMNS["findings"]
    assert any(say(remark).startswith("load, iops:") for remark in remarks_on([stepped()], {}))


def test_alike_watches_are_one_entry_and_a_node_that_watched_otherwise_is_another() -> None:
    watched = [
        Observed(cell, node, "alignment", {"disks": [disk], "hook": "tp_btf"})
        for cell, node, disk in ((2, "vm-1", "vda"), (1, "vm-1", "vdb"), (1, "vm-2", "vda"))
    ]
    assert probe_facts(watched) == [
        {"probe": "alignment", "nodes": ["vm-1", "vm-2"], "cells": [1, 2], "disks": ["vda", "vdb"], "hook": "tp_btf"}
    ]
    watched = [
        Observed(1, "a", "alignment", {"disks": [], "hook": "tp_btf"}),
        Observed(1, "b", "alignment", {"disks": [], "hook": "classic tracepoint"}),
    ]
    assert [(entry["nodes"], entry["hook"]) for entry in probe_facts(watched)] == [
        (["a"], "tp_btf"),
        (["b"], "classic tracepoint"),
    ]


def refuse(*arguments: Any) -> int:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("size", [0, 1, 3 * 1024**2 + 5])
@pytest.mark.parametrize("kernel", ["copies", "refuses"])
def test_a_copy_is_whole_whether_the_kernel_makes_it_or_not(
    size: int, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "refuses":
        monkeypatch.setattr(os, "copy_file_range", refuse)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(size))
    copy_durably(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_a_copy_of_a_file_without_a_length_is_whole_and_a_full_disk_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_durably(Path("/proc/version"), tmp_path / "version")
    assert (tmp_path / "version").read_text() == Path("/proc/version").read_text()

    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(OSError, match="No space left"):
        copy_durably(tmp_path / "source", tmp_path / "target")


def test_what_is_alike_of_many_trials_is_said_once_with_their_numbers() -> None:
    lost = [unreadable(number, f"run/trials/{number:04d}/host/a: gone") for number in (1, 2, 3, 7)]
    other = unreadable(10000, "run/trials/10000/b")
    assert [*map(say, together([*lost, Reported("all: else"), other, Reported("all: else")]))] == [
        "trials 1–3, 7: raw records cannot be read: run/trials/…/host/a: gone",
        "all: else",
        "trial 10000: raw records cannot be read: run/trials/10000/b",
    ]
    assert together(lost[1:2]) == lost[1:2]
