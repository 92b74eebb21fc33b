"""Several of fio's documents in one file, or of several files, and what stands around them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from formats.fio.program import run_fio
from formats.fio.samples import golden, values
from storlab import open_run
from storlab.errors import ParseError
from study.program import call

from .fio_files import later, parts, ran


def test_runs_that_were_appended_to_one_file_are_all_read_in_order(folder: Path, tmp_path: Path) -> None:
    sizes = ("4k", "16k", "4096")
    files = [ran(folder, f"{number}.json", f"--bs={bs}", "--rw=write") for number, bs in enumerate(sizes)]
    whole, run = tmp_path / "all.json", tmp_path / "run"
    whole.write_bytes(b"".join(path.read_bytes() for path in files))
    imported = call("import", "fio", str(whole), "--out", str(run))
    assert imported.status == 0, imported.message
    assert "3 trials of 2 cells" in imported.output
    trials = open_run(run).trials.sort("trial")
    assert trials.select("factor.bs", "round").rows() == [("4k", 1), ("16k", 1), ("4k", 2)]


def test_of_runs_in_one_file_those_that_were_cut_off_are_left_out() -> None:
    whole = golden("fio-plain.json")
    lines = whole.count(b"\n")
    for text, line in (
        (whole + whole[:900], None),
        (whole[:900] + b"\n" + whole, None),
        (whole + whole[:1], lines + 1),
    ):
        (part,) = parts(text)
        assert values(part.measured) == values(parts(whole)[0].measured)
        assert "damaged or truncated" in part.measured.warnings[0]
        assert "that document is left out" in part.measured.warnings[0]
        assert line is None or part.measured.warnings[0].startswith(f"line {line}: ")


def test_documents_on_a_line_each_are_runs_too() -> None:
    whole = golden("fio-plain.json")
    line = json.dumps(json.loads(whole[whole.index(b"{") :])).encode()
    assert len(parts(line + b"\n" + later(line))) == 2


def test_a_copy_of_a_report_is_no_repeat() -> None:
    whole = golden("fio-plain.json")
    first, second = parts(whole + later(whole) + whole)
    assert first.started != second.started
    assert first.measured.warnings[0] == "copies of its own reports are left out: 1"


def test_reports_of_a_run_that_went_on_are_no_runs(folder: Path) -> None:
    slow = ["--rw=randwrite", "--time_based", "--runtime=2", "--rate_iops=200", "--status-interval=1"]
    path = ran(folder, "a.json", *slow)
    once, twice = parts(path.read_bytes()), parts(path.read_bytes() + later(path.read_bytes()))
    assert (len(once), len(twice)) == (1, 2)
    assert values(once[0].measured)["runtime"] == pytest.approx(2, abs=0.2)
    assert "reports of runs that went on (--status-interval) are left out: " in once[0].measured.warnings[0]


def test_runs_of_several_processes_that_were_appended_to_each_other_are_runs() -> None:
    # With group_reporting, job_runtime is the sum over the processes, far more than the time that they took.
    whole = re.sub(rb'"job_runtime" : \d+', b'"job_runtime" : 90000', golden("fio-group.json"))
    assert len(parts(whole + later(whole))) == 2


def test_messages_are_warnings_and_other_lines_around_are_not(folder: Path) -> None:
    path = ran(folder, "a.json", "--rw=read", "--iodepth=4", form="normal,json+")
    (part,) = parts(b"+ mount /dev/sdb1\n" + path.read_bytes() + b"done\n")
    assert all(warning.startswith("fio: note: ") for warning in part.measured.warnings)
    assert len(part.measured.warnings) == 2


def test_jobs_that_ran_one_after_another_are_trials_of_their_own() -> None:
    read = parts(golden("fio-stonewall.json"))
    assert len(read) == 2
    first, second = read
    assert first.started is not None
    assert second.started is not None
    assert first.started < second.started
    assert not any("several groups" in warning for part in read for warning in part.measured.warnings)
    assert first.traits != second.traits


def stonewalled(folder: Path, *, fails: int) -> bytes:
    """Three jobs, one after another, that log into files of one name; that number of them, from 0, can't write."""
    jobs = [f"[{name}]\nstonewall\nrw=write\nbs={bs}\n" for name, bs in (("a", "4k"), ("b", "8k"), ("c", "16k"))]
    jobs[fails] += "filename=/proc/version\n"
    shared = "[global]\nfilename=data\nsize=64k\nwrite_bw_log=mine\nlog_avg_msec=100\n"
    (folder / "jobs.fio").write_text(shared + "".join(jobs))
    return run_fio("--output-format=json+", "jobs.fio", cwd=folder).stdout


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_job_that_failed_leaves_those_before_and_after_it_as_they_are(fails: int, folder: Path) -> None:
    read = parts(stonewalled(folder, fails=fails))
    assert [part.status for part in read] == ["failed" if at == fails else "done" for at in range(3)]
    assert [part.traits["bs"] for part in read] == ["4k", "8k", "16k"]
    assert read[fails].reason
    assert read[fails].measured.metrics.is_empty()
    for at in {0, 1, 2} - {fails}:
        assert values(read[at].measured)["write.bytes"] == 65536
        assert list(read[at].measured.facts["options"]) == ["abc"[at]]  # type: ignore[call-overload]


def test_two_jobs_that_failed_have_each_its_own_reason() -> None:
    document = json.loads(golden("fio-stonewall.json"))
    for job, error in zip(document["jobs"], (1, 5), strict=False):
        job["error"] = error
    said = [f"fio: pid=0, err={number}/file:x.c:1, error={name}" for number, name in ((1, "one"), (5, "five"))]
    read = parts("\n".join([*said, json.dumps(document, indent=1)]).encode())
    assert [part.reason is not None and part.reason.rpartition("=")[2] for part in read] == ["one", "five"]


def test_logs_that_a_failed_job_wrote_into_as_well_are_named(folder: Path, tmp_path: Path) -> None:
    path = folder / "a.json"
    path.write_bytes(stonewalled(folder, fails=1).replace(b'"jobname" : "c"', b'"jobname" : "d"'))
    document = json.loads(path.read_bytes()[path.read_bytes().index(b"{") :])
    document["jobs"] = document["jobs"][:2]
    path.write_text(json.dumps(document, indent=1))
    (folder / "mine_bw.1.log").write_text("100, 9, 1, 0, 0\n")
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "run"))
    assert imported.status == 0, imported.message
    assert "its logs mine_*.log are of jobs or runs that ran one after another" in imported.message


def test_jobs_that_ran_at_once_are_one_trial() -> None:
    (part,) = parts(golden("fio-four-jobs.json"))
    alone = values(part.measured)
    assert alone["bandwidth"] > 0
    assert part.measured.metrics["job"].n_unique() == 5


def test_the_times_of_the_reports_give_the_order_not_the_files(tmp_path: Path) -> None:
    document = json.loads(golden("fio-plain.json")[golden("fio-plain.json").index(b"{") :])
    paths = []
    for name, stamp in (("late", 2_000_000), ("early", 1_000_000)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**document, "timestamp_ms": stamp}, indent=1))
        paths.append(str(path))
    run = tmp_path / "run"
    assert call("import", "fio", *paths, "--out", str(run)).status == 0
    assert open_run(run).trials["round"].to_list() == [2, 1]


def test_files_of_clients_that_ran_at_once_are_told_to_be_no_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # reports break lines within long paths
    whole = golden("fio-steady.json")
    (part,) = parts(whole)
    assert part.lasted is not None
    for name, after in (("one", 0), ("two", int(part.lasted * 500)), ("three", int(part.lasted * 2000))):
        Path(f"{name}.json").write_bytes(later(whole, after))
    told = "one.json and two.json ran at once, as clients do, and are no repeats: tell them apart by --factor"
    imported = call("import", "fio", "one.json", "two.json", "three.json", "--out", "run")
    assert told in imported.message
    assert told in " ".join(call("report", "run").output.split())
    for named in (["two.json", "--factor", "client=1,2", "--out", "apart"], ["three.json", "--out", "after"]):
        assert "ran at once" not in call("import", "fio", "one.json", *named).message


def inside(text: bytes) -> dict[str, bytes]:
    """fio's JSON as other programs pass it on."""
    document = json.loads(text)
    return {
        "the log of a container": b"".join(b"fio-1  | " + line for line in text.splitlines(keepends=True)),
        "a line that something else begins": b">" + text.lstrip(),
        "another program's JSON": json.dumps({"jobs": {"a": 1}, "raw": {"result": document}}, indent=2).encode(),
        "a string of another program's JSON": json.dumps({"plays": [{"stdout": text.decode()}]}).encode(),
    }


@pytest.mark.parametrize("form", inside(golden("fio-mixed.json")))
def test_documents_inside_of_something_else_are_refused_with_their_line_and_the_remedy(form: str) -> None:
    text = inside(golden("fio-mixed.json"))[form]
    line = text[: text.index(b"fio version")].count(b"\n") + 1
    with pytest.raises(ParseError) as refused:
        parts(text)
    told = "fio's JSON is in the midst of other text: leave only its lines, from { to }"
    assert str(refused.value) == f"x.json:{line}: {told}"
