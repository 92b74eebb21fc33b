"""Questions of one command: ``storlab check``, whose exit status tells a script; and two builds of one program."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storlab.cli.check import _FOLDER, _names
from storlab.run.planning.metrics import refuse_unknown_metrics
from storlab.study.study import load_study
from study.program import call

SHORT = ("--quiet", "--shared", "--set", "runtime=50ms")


@pytest.mark.parametrize("name", _names(""))
def test_each_check_is_a_study_without_factors_whose_limits_fit_its_metrics(name: str) -> None:
    study = load_study(_FOLDER / f"{name}.toml", ["claim.0.below=5ms"])
    refuse_unknown_metrics(study)
    assert len(study.cells) == 1 and study.model.claim and study.model.description
    assert call("check", name, "--print").output.strip() == (_FOLDER / f"{name}.toml").read_text().strip()


@pytest.mark.parametrize(("below", "status", "verdict"), [("100s", 0, "holds"), ("1us", 4, "does not hold")])
def test_the_verdict_is_the_first_line_and_the_status(
    below: str, status: int, verdict: str, tmp_path: Path, here: None
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    ran = call("check", "fsync", "--dir", str(place), "--below", below, "--out", "run", *SHORT)
    said, verdict = " ".join(ran.output.split()), f"99 % of all fdatasyncs are done in time: {verdict}."
    assert (ran.status, verdict in said) == (status, True), said
    assert "etcd's heartbeats come late" in said and "Latency" not in said, "what it means, and no more than asked"
    (claim,) = json.loads(Path("run/summary.json").read_text())["claims"]
    assert claim["settled"] and claim["rounds"] == 10 and claim["low"] <= claim["value"] <= claim["high"]
    assert not [*place.iterdir()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fsnyc",), "unknown check 'fsnyc': write one of etcd, fsync, postgres"),
        (("fsync", "--dir", "/dev/shm"), "its files are in memory (tmpfs), and on no disk"),
        (("fsync", "--dir", "/nowhere"), "--dir /nowhere: there is no such directory"),
        (("fsync", "--dir", "/var/tmp", "--below", "10MB"), '"10MB" is not a duration'),
    ],
)
def test_what_can_not_be_checked_is_refused_before_anything_is_written(
    words: tuple[str, ...], message: str, here: None
) -> None:
    ran = call("check", *words)
    assert ran.status == 2 and message in ran.message
    assert not Path("runs").exists()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that the users of loads can pass through, as a test's own is not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_two_builds_of_fio_are_levels_of_its_path_and_need_a_permission_each(open_folder: Path, here: None) -> None:
    """What else the workload has (its checks, layout, metrics) is the same with either."""
    debian, own = shutil.which("fio") or "fio", open_folder / "fio"
    own.write_text(f'#!/bin/sh\necho ran >&2\nexec {debian} "$@"\n')
    own.chmod(0o755)
    Path("two.toml").write_text(
        "title = 'Two builds'\nstack = [{ layer = 'directory' }]\n"
        f"factors.build = {{ a = '{debian}', b = '{own}' }}\n"
        "workload.w.fio = { path = '{build}', rw = 'randread', bs = 4096, size = '1M' }\n"
    )
    refused = call("run", "two.toml", "--quiet", "--shared", "--allow", f"code={debian}")
    assert refused.status == 2 and f"--allow code={own}" in refused.message and not Path("runs").exists()
    permitted = (f"--allow=code={debian}", f"--allow=code={own}")
    ran = call("run", "two.toml", "--quiet", "--shared", "--rounds", "1", "--json", "--out", "run", *permitted)
    assert ran.status == 0, ran
    found = {each["levels"]["build"] for each in json.loads(ran.output)["summary"]["estimates"]}
    assert found == {"a", "b"}
    open_folder.chmod(0o700)
    closed = call("run", "two.toml", "--quiet", "--shared", "--rounds", "1", *permitted)
    assert closed.status == 2 and f"{own} can't be run" in closed.message
    assert len([path for path in Path("run").rglob("*") if path.is_file() and b"ran\n" in path.read_bytes()]) == 1
