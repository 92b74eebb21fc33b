"""Tables that are kept: a trial is parsed once, and again when what it was parsed from is not the same any more."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from attacks.odd_files import KINDS, bounded, lay
from laboratory import Laboratory, opened
from laboratory.studies import directory
from laboratory.trust import allowing, trusting
from storlab.records import derive_trial
from storlab.records import kept as fingerprint
from storlab.records.derive import derive, tables_of
from storlab.records.derive_trial import Done, Observations
from storlab.records.run_folder import TABLES, RunFolder
from storlab.records.tables import Tables
from storlab.report.language.say import said
from storlab.run.executor import resume_run
from storlab.run.limits import Extent
from storlab.run.observer import Observer
from study.program import call

from .test_records import FIO, VERIFY

STUDY = directory(FIO, rounds=2, trial=VERIFY, rest='[factors]\nbs = ["4k", "8k", "16k"]')
STUDY = STUDY.replace("[probes]", "[probes]\nhost-load = {}")
DONE = 4


class Parsed(list[int]):
    """The trials that were parsed, in order; ``take`` empties it."""

    def take(self) -> list[int]:
        taken = sorted(self)
        self.clear()
        return taken


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    found, real = Parsed(), derive_trial.parse_trial

    def counted(trial: Done, observations: Observations) -> derive_trial.Parsed:
        found.append(trial.record.trial)
        return real(trial, observations)

    monkeypatch.setattr(derive_trial, "parse_trial", counted)
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Six trials, of which two failed."""
    with opened(Laboratory(tmp_path_factory.mktemp("kept"))) as lab:
        lab.execute(STUDY)
        yield lab.out


@pytest.fixture
def run(original: Path, tmp_path: Path) -> RunFolder:
    """A copy with its tables kept."""
    shutil.copytree(original, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    tables_of(run)
    return run


def done(run: RunFolder) -> list[int]:
    return [record.trial for record in run.records() if record.status == "done"]


def raw_file(run: RunFolder, trial: int) -> Path:
    return run.trial_folder(trial) / "host" / "load" / "fio.json"


def from_nothing(run: RunFolder) -> Tables:
    """As if nothing were kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "of_run", lambda *given: None)
        return derive(run)


def same(one: Tables, other: Tables) -> bool:
    for name in TABLES:
        assert_frame_equal(one.frame(name), other.frame(name), check_exact=True)
    assert one.warnings() == other.warnings()
    assert one.probe_facts() == other.probe_facts()
    assert one.declared().to_json() == other.declared().to_json()
    return True


def test_a_run_its_report_and_its_resumption_parse_each_trial_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: Parsed
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lab = Laboratory(tmp_path)
    study = lab.study(STUDY)
    assert call(*allowing(["run", str(study), "--out", str(lab.out), "--seed", "1"])).status == 3  # two trials fail
    first = done(lab.run_folder)
    assert len(first) == DONE
    assert parsed.take() == first, "by the run and its report together"

    shown = call("report", str(lab.out), "--format", "json")
    assert shown.status == 0
    assert call("compare", str(lab.out), "--by", "bs").status in (0, 3)
    assert parsed.take() == []

    raw_file(lab.run_folder, first[1]).touch()
    assert call("report", str(lab.out), "--format", "json").output == shown.output
    assert parsed.take() == [first[1]]
    assert call("report", str(lab.out), "--format", "json").output == shown.output
    assert parsed.take() == []

    asyncio.run(resume_run(lab.out, Observer(), Extent(more=1), trusting(lab.run_folder.manifest.study())))
    added = sorted(set(done(lab.run_folder)) - set(first))
    assert len(added) == 2
    assert parsed.take() == added
    assert same(derive(lab.run_folder), from_nothing(lab.run_folder))


def test_what_is_kept_is_what_would_be_derived(run: RunFolder, parsed: Parsed) -> None:
    kept = derive(run)
    assert parsed.take() == []
    assert all(kept.frame(name).equals(getattr(run, name)) for name in TABLES), "of the files"
    assert same(kept, from_nothing(run))
    assert parsed.take() == done(run)


def test_a_change_that_keeps_length_and_time_is_seen(run: RunFolder, parsed: Parsed) -> None:
    trial = done(run)[0]
    path = raw_file(run, trial)
    before, text = path.stat(), path.read_text()
    with path.open("r+") as file:
        file.write(re.sub(r'("io_bytes" : )[1-9]', r"\g<1>9", text))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not run.metrics.equals(tables_of(run).frame("metrics")), "the file in its place says something else"
    assert parsed.take() == [trial]


def add_file(folder: Path) -> None:
    (folder / "host" / "load" / "more").write_text("")


def add_folder_with_file(folder: Path) -> None:
    (folder / "host" / "probe-host-load" / "more").mkdir()
    (folder / "host" / "probe-host-load" / "more" / "x").write_text("")


def remove_probe(folder: Path) -> None:
    shutil.rmtree(folder / "host" / "probe-host-load")


def replace_by_copy(folder: Path) -> None:
    path = folder / "host" / "load" / "fio.json"
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def change_record(folder: Path) -> None:
    record = json.loads((folder / "trial.json").read_bytes())
    record["nodes"]["host"]["end"] += 1
    (folder / "trial.json").write_text(json.dumps(record))


@pytest.mark.parametrize("change", [add_file, add_folder_with_file, remove_probe, replace_by_copy, change_record])
def test_only_what_changed_is_parsed(change: Callable[[Path], None], run: RunFolder, parsed: Parsed) -> None:
    trial = done(run)[1]
    change(run.trial_folder(trial))
    tables = tables_of(run)
    assert parsed.take() == [trial]
    assert same(tables, from_nothing(run))


def test_a_trial_that_was_removed_is_in_no_table_any_more(run: RunFolder, parsed: Parsed) -> None:
    gone = done(run)[0]
    shutil.rmtree(run.trial_folder(gone))
    tables = tables_of(run)
    assert parsed.take() == []
    assert same(tables, from_nothing(run))
    assert gone not in RunFolder.open(run.path).metrics["trial"].to_list(), "nor in the file"


def test_a_trial_that_cannot_be_read_is_parsed_each_time_and_a_linked_one_never(run: RunFolder, parsed: Parsed) -> None:
    trial = done(run)[0]
    raw_file(run, trial).write_text("{")
    for _ in range(2):
        assert f"trial {trial}: raw records cannot be read" in "\n".join(said(tables_of(run).warnings()))
        assert parsed.take() == [trial]
    path = raw_file(run, trial)
    path.rename(run.path / "elsewhere")
    path.symlink_to(run.path / "elsewhere")
    for _ in range(2):
        assert "is a symbolic link" in "\n".join(said(tables_of(run).warnings()))
        assert parsed.take() == []


def test_another_version_of_the_code_or_another_study_derives_all_again_and_keeps_it(
    run: RunFolder, parsed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_code", lambda package: f"another {package}")
    tables_of(run)
    assert parsed.take() == done(run)
    tables_of(run)
    assert parsed.take() == []
    manifest = json.loads((run.path / "manifest.json").read_bytes())
    manifest["study_text"] += "\n# a comment\n"
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    tables_of(run)
    assert parsed.take() == done(run)


def test_every_source_file_of_the_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "storlab_extension"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "parser.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("storlab_extension")
    code = fingerprint._code.__wrapped__
    before = code("storlab_extension")
    (package / "deep" / "parser.py").write_text("A = 2\n")
    assert before is not None
    assert code("storlab_extension") not in (None, before)
    assert code("no such package") is None


def test_tables_that_came_with_a_copy_are_not_believed(run: RunFolder, tmp_path: Path, parsed: Parsed) -> None:
    copy = RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy")))
    assert same(tables_of(copy), from_nothing(run))
    parsed.clear()
    tables_of(copy)
    assert parsed.take() == [], "now they are of this place"


FILES = [*(f"{name}.parquet" for name in TABLES), "declared.json", "kept.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"{}", None])
def test_a_kept_file_that_is_damaged_or_missing_is_made_again(
    name: str, change: Callable[[bytes], bytes] | None, run: RunFolder, parsed: Parsed
) -> None:
    path = run.path / "tables" / name
    right = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(right))
    assert same(tables_of(run), from_nothing(run))
    parsed.clear()
    tables_of(run)
    assert parsed.take() == []
    assert name == "kept.json" or path.read_bytes() == right


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["metrics.parquet", "kept.json"])
def test_a_kept_file_that_is_no_file_neither_hangs_nor_fails(kind: str, name: str, run: RunFolder) -> None:
    lay(kind, run.path / "tables" / name)
    with bounded():
        assert call("report", str(run.path), "--format", "json").status == 0


def crafted(run: RunFolder, change: Callable[[dict[str, Any]], None], **frames: pl.DataFrame) -> None:
    """``kept.json`` and tables as somebody makes them who knows all of it; checksums are right."""
    kept = json.loads(run.kept_path.read_bytes())
    for name, frame in frames.items():
        frame.write_parquet(run.table_path(name))
        kept["files"][name] = hashlib.sha256(run.table_path(name).read_bytes()).hexdigest()
    change(kept)
    run.kept_path.write_text(json.dumps(kept))


def test_tables_of_other_columns_rounds_or_cells_are_derived_again(run: RunFolder) -> None:
    rows = run.metrics
    for wrong in (
        rows.drop("unit"),
        rows.with_columns(pl.col("value").cast(pl.String)),
        rows.with_columns(pl.col("round") + 7),
    ):
        crafted(run, lambda kept: None, metrics=wrong)
        assert same(tables_of(run), from_nothing(run))


def test_what_another_user_may_have_written_is_not_believed(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    tenfold = run.metrics.with_columns(pl.col("value") * 10)
    crafted(run, lambda kept: None, metrics=tenfold)
    assert derive(run).frame("metrics").equals(tenfold), "as one's own it would be"
    run.kept_path.chmod(0o620)
    assert same(derive(run), from_nothing(run))
    run.kept_path.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert same(tables_of(run), from_nothing(run))
    assert run.table_path("metrics").exists()
    assert pl.read_parquet(run.table_path("metrics")).equals(tenfold), "nor is anything written in a folder of theirs"


def test_nothing_is_written_through_links_among_the_tables(run: RunFolder, tmp_path: Path) -> None:
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("untouched")
    for name in FILES:
        (run.path / "tables" / name).unlink()
        (run.path / "tables" / name).symlink_to(precious)
        (run.path / "tables" / f".{name}.new").symlink_to(precious)
    assert call("report", str(run.path)).status == 0
    assert precious.read_text() == "untouched"
    elsewhere.mkdir()
    shutil.rmtree(run.path / "tables")
    (run.path / "tables").symlink_to(elsewhere)
    refused = call("report", str(run.path))
    assert refused.status == 2 and "tables is a symbolic link" in refused.message, refused
    assert list(elsewhere.iterdir()) == []


def test_while_somebody_has_the_run_a_report_keeps_nothing(run: RunFolder, parsed: Parsed) -> None:
    shutil.rmtree(run.path / "tables")
    with RunFolder(run.path).lock():
        assert same(tables_of(run), from_nothing(run))
    assert not (run.path / "tables").exists()


def test_a_folder_that_cannot_be_written_has_its_report(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    shutil.rmtree(run.path / "tables")
    monkeypatch.setattr("storlab.records.kept.write_whole", refused)
    assert call("report", str(run.path)).status == 0


def test_an_imported_run_is_read_again_where_its_file_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storlab.tools.blkalgn import BlkalgnImporter

    calls, real = [], BlkalgnImporter.read

    def counted(self: BlkalgnImporter, *given: Any) -> Any:
        calls.append(1)
        return real(self, *given)

    monkeypatch.setattr(BlkalgnImporter, "read", counted)
    file, folder = tmp_path / "a.json", tmp_path / "run"
    file.write_text(json.dumps({"disks": {"vda": {"granularity": {"4608": 100}, "alignment": {"4096": 100}}}}))
    assert call("import", "blkalgn", str(file), "--out", str(folder)).status == 0
    calls.clear()
    shown = call("report", str(folder), "--format", "json")
    assert (shown.status, calls) == (0, [])
    (kept,) = (folder / "trials").rglob("blkalgn.json")
    kept.write_text(kept.read_text().replace("100", "700"))
    assert call("report", str(folder), "--format", "json").output != shown.output
    assert calls == [1]
    assert call("report", str(folder), "--format", "json").output != shown.output
    assert calls == [1]
