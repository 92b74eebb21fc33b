"""What the author of a run's folder can't do to whoever reports on it, compares, resumes or cleans it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attacks import ATTACKS, SEED
from attacks.mutations import mutated, mutated_json
from attacks.odd_files import KINDS, bounded, lay
from attacks.odd_files import remove as remove_odd
from laboratory import Laboratory, ended, wait_for
from laboratory.studies import FIO, directory
from storlab.base.errors import StorlabError
from storlab.records.run_folder import TABLES, RunFolder
from study.program import Ran, call


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with raw files of fio and of probes."""
    folder = tmp_path_factory.mktemp("finished")
    with contextlib.closing(Laboratory(folder)) as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab.execute(directory(f"fio = {FIO}", rounds=2).replace("[probes]", ""))
        assert call("report", str(lab.out), "--format", "json").status == 0
    return folder / "out"


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def answered(ran: Ran) -> Ran:
    """A report, or a refusal that says why; nothing else."""
    assert ran.status in (0, 2, 3), ran
    assert "internal error" not in ran.message, ran.message
    assert "Traceback" not in ran.message
    assert ran.message if ran.status == 2 else True
    return ran


def files_of(folder: Path) -> Iterator[Path]:
    """All but the journal, which is for whoever tears down: tests/attacks/test_journals.py."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "journal.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_any_file_of_a_run_that_is_no_file_neither_hangs_nor_fills_memory(kind: str, run: Path, finished: Path) -> None:
    one_of_each = {each.name: each for each in files_of(finished)}  # all trials have the same
    for turn, path in enumerate(run / each.relative_to(finished) for each in one_of_each.values()):
        # All kinds in `make attack`; else each file is a pipe, and two other kinds that change with the day.
        if not (ATTACKS or kind == "fifo" or (SEED + turn + [*KINDS].index(kind)) % len(KINDS) < 2):
            continue
        lay(kind, path)
        with bounded():
            answered(call("report", str(run), "--format", "json"))
            if path.name in ("manifest.json", "trial.json", "lock"):
                answered(call("clean", str(run)))
        lay("fifo", path)
        path.unlink()
        shutil.copy2(finished / path.relative_to(run), path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_no_file_is_named_to_whoever_opens_the_run(kind: str, run: Path) -> None:
    for file, name in [*((f"{name}.parquet", name) for name in TABLES), ("declared.json", "declared")]:
        lay(kind, run / "tables" / file)
        with bounded(), pytest.raises(StorlabError, match=name):
            getattr(RunFolder.open(run), name)


def test_nothing_is_written_through_links_in_a_run_and_no_chart(run: Path, tmp_path: Path) -> None:
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("untouched")
    elsewhere.mkdir()
    for name in (".report.html.new", "lock", "report.html"):
        remove_odd(run / name)
        (run / name).symlink_to(precious)
    for words in (("report", "--format", "html"), ("clean",), ("resume",)):
        answered(call(words[0], str(run), *words[1:]))
    (run / "report.html").unlink()
    answered(call("report", str(run), "--format", "html"))
    for path in list(files_of(run / "charts")):
        path.unlink()
        path.symlink_to(precious)
        with contextlib.suppress(FileExistsError):
            path.with_name(f".{path.name}.new").symlink_to(precious)
    answered(call("report", str(run), "--format", "html"))
    shutil.rmtree(run / "charts")
    (run / "charts").symlink_to(elsewhere)
    answered(call("report", str(run), "--format", "html"))
    assert precious.read_text() == "untouched" and list(elsewhere.iterdir()) == []


SEEDS = st.integers(0, 2**62)
ONCE = settings(max_examples=10, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
"""Making a seed smaller makes nothing simpler."""


def damage(run: Path, finished: Path, name: str, seed: int) -> Path:
    """One of the run's files by this name is not what it was."""
    choose = random.Random(seed)
    paths = sorted(path.relative_to(finished) for path in finished.rglob(name))
    path = choose.choice(paths)
    text = (finished / path).read_bytes()
    try:
        changed = mutated_json(text, choose)
    except ValueError:
        changed = mutated(text, choose)
    (run / path).write_bytes(changed)
    return run / path


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "kept.json", "trial.json", "exit.json", "subject.json", "samples.jsonl", "fio.json", "*.log",
     "*.json*"],
)  # fmt: skip
@ONCE
@given(seed=SEEDS)
def test_a_record_that_is_damaged_gives_a_report_or_a_refusal(name: str, run: Path, finished: Path, seed: int) -> None:
    path = damage(run, finished, name, seed)
    try:
        with bounded():
            answered(call("report", str(run), "--format", "json"))
            if name == "manifest.json":
                answered(call("clean", str(run)))
                answered(call("compare", str(run), str(finished)))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {path}") from error
    finally:
        shutil.copy2(finished / path.relative_to(run), path)


@pytest.mark.parametrize("name", [*(f"{name}.parquet" for name in TABLES), "declared.json"])
@ONCE
@given(seed=SEEDS)
def test_a_table_that_is_damaged_is_read_or_named(name: str, run: Path, finished: Path, seed: int) -> None:
    path = damage(run, finished, name, seed)
    with contextlib.suppress(StorlabError), bounded():
        getattr(RunFolder.open(run), path.name.removesuffix(".parquet").removesuffix(".json"))


def test_no_identity_of_a_run_leads_out_of_the_folders_that_it_names(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_bytes())
    for identity in ("../../x", "/etc", "", ".", "a/b", "x" * 300, "a\n", "\x1b[2J", "*"):
        (run / "manifest.json").write_text(json.dumps(manifest | {"run": identity}))
        for command in ("report", "resume", "clean"):
            ran = answered(call(command, str(run)))
            assert ran.status == 2, (identity, command)
            assert "manifest.json is damaged: run: " in ran.message


def rename(run: Path) -> Path:
    return run.rename(run.with_name("elsewhere"))


def remove(run: Path) -> None:
    while run.exists():  # what is written meanwhile is in the way
        shutil.rmtree(run, ignore_errors=True)


def replace(run: Path) -> Path:
    found = rename(run)
    shutil.copytree(found, run)
    return found


@pytest.mark.parametrize(("change", "by_link"), [(rename, False), (rename, True), (remove, False), (replace, True)])
def test_a_run_whose_folder_is_not_in_its_place_any_more_stops_and_says_where_it_is(
    change: Callable[[Path], Path | None], by_link: bool, lab: Laboratory, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    out = tmp_path / ("link" if by_link else "real") / "run"
    study = lab.study(directory('command = { argv = ["sleep", "0.5"] }', rounds=40))
    process = lab.start("run", study, "--out", out, "--seed", "1")
    wait_for(process, lambda: (out / "trials" / "0002" / "trial.json").exists())
    moved = change(out)
    found = moved.resolve() if moved else None
    if by_link and change is rename:
        (tmp_path / "link").unlink()
        (tmp_path / "other").mkdir()
        (tmp_path / "link").symlink_to("other")
    ran = ended(process)
    assert ran.status == 1 and f"{out} is not the folder of this run any more" in ran.stderr, str(ran)
    assert "Traceback" not in ran.stderr and "internal error" not in ran.stderr
    assert not any(path.name.startswith("storlab-") for path in lab.scratch.iterdir())
    assert lab.processes() == [] and lab.links == []
    if found is not None:
        records = list(RunFolder.open(found).records())
        assert [record.trial for record in records] == list(range(1, len(records) + 1))
        assert len(records) >= 2
        assert f"storlab resume {found}" in ran.stderr


@pytest.mark.needs("root")
def test_nobody_else_can_look_into_a_run_whatever_the_umask(lab: Laboratory, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        study = directory('command = { argv = ["true"] }')
        assert lab.run(study).status == 0
        (tmp_path / "rates.csv").write_text("rate\n1000\n")
        words = ("import", "csv", tmp_path / "rates.csv", "--value", "rate", "--out", tmp_path / "imported")
        assert lab.storlab(*words).status == 0
    finally:
        os.umask(before)
    for folder in (lab.out, tmp_path / "imported"):
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in (folder, folder / "manifest.json", folder / "trials" / "0001" / "trial.json"):
            argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", str(path)]
            assert subprocess.run(argv, capture_output=True).returncode != 0, path
