"""``storlab report`` and ``compare``: messages and statuses, where they write, and what they say of damaged runs."""

import contextlib
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from laboratory.devices import tmpfs
from laboratory.samples import sample
from study.program import Ran, call, program

STUDY = sample(__file__, "cases/reports.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``old`` and ``new`` of the same study, and ``other`` with another level."""
    folder = tmp_path_factory.mktemp("runs")
    for name, levels in {"old": '10", "100', "new": '10", "100', "other": "300"}.items():
        (folder / f"{name}.toml").write_text(STUDY.replace("LEVELS", levels))
        ran = program("run", f"{name}.toml", "--out", name, "-q", folder=folder)
        assert ran.returncode == 0, ran.stderr
    return folder


def test_two_runs_are_described_and_levels_of_one_run_are_compared_by_round(runs: Path) -> None:
    ran = program("compare", "old", "new", folder=runs)
    assert ran.returncode == 0, ran.stderr
    assert "new compared with old" in ran.stdout
    assert "Described and not judged" in " ".join(ran.stdout.split())
    ran = program("compare", "old", "--by", "time", "--format", "markdown", folder=runs)
    assert ran.returncode == 0, ran.stderr
    assert "| ? undecided \\[1\\] | 3 \\[2\\] |" in ran.stdout


def test_a_gate_that_is_hit_ends_with_status_four_and_the_file_is_written(runs: Path) -> None:
    words = "--by time --fail-on worse>50% --fail-on differs>50% --format junit --out x.xml"
    ran = program("compare", "old", "other", *words.split(), folder=runs)
    assert (ran.returncode, ran.stdout) == (4, "x.xml\n"), ran.stderr
    assert Xml.parse(runs / "x.xml").getroot().get("failures") == "2", "what only one side has fails as well"


def test_a_copy_of_a_run_is_not_taken_for_more_rounds(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "old", tmp_path / "copy")
    for by in ((), ("--by", "time")):
        ran = program("compare", "old", str(tmp_path / "copy"), *by, folder=runs)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "old and copy are one run, " in ran.stderr and "a copy is not a repeat; leave one out" in ran.stderr


def test_a_file_that_was_imported_twice_is_not_taken_for_more_rounds(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("fs,v\na,1\nb,2\nb,2.1\na,1.1\na,1.2\nb,1.9\n")
    for name in ("one", "two"):
        words = ("t.csv", "--factor-column", "fs", "--value", "v", "--out", name)
        ran = program("import", "csv", *words, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    ran = program("compare", "one", "two", "--by", "fs", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "one and two hold the same file, t.csv: a copy is not a repeat; leave one out" in ran.stderr
    assert program("compare", "one", "two", folder=tmp_path).returncode == 0, "counts of two runs may well be the same"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("old",), "one run cannot be compared with itself"),
        (("old", "./old"), "named twice"),
        (("old", "nowhere"), "nowhere does not exist"),
        (("old", "new", "--fail-on", "wrose>3%"), "cannot read --fail-on 'wrose>3%'"),
        (("old", "new", "--format", "pdf"), "unknown format 'pdf'"),
        (("old", "new", "--by", "disk"), "old has no factor 'disk'; it has: time"),
        (("old", "new", "--metric", "tooks"), "no trial has it; did you mean 'took'?"),
    ],
)
def test_mistakes_are_one_sentence_and_status_two(runs: Path, words: tuple[str, ...], message: str) -> None:
    ran = program("compare", *words, folder=runs)
    assert ran.returncode == 2, ran.stdout
    assert message in ran.stderr and "Traceback" not in ran.stderr


def test_runs_that_have_nothing_in_common_end_with_status_three_and_what_to_ask_instead(runs: Path) -> None:
    ran = program("compare", "old", "other", folder=runs)
    assert (ran.returncode, "With `--by time`, its levels are compared instead of the runs." in ran.stderr) == (3, True)


def test_a_gate_that_can_not_be_told_yet_ends_with_status_four_unless_it_may_pass(runs: Path) -> None:
    words = ("compare", "old", "--by", "time", "--fail-on", "worse>5%")
    ran = program(*words, folder=runs)
    assert ran.returncode == 4, ran.stderr
    assert "Not passed: no gate was hit, but 1 of 1 comparison is undecided" in " ".join(ran.stdout.split())
    assert program(*words, "--allow-undecided", folder=runs).returncode == 0


@pytest.fixture
def imported(here: Path) -> Path:
    """``old`` and ``new``, each imported from a file of its own, in the folder in which commands run."""
    for name, rate in (("old", 1000), ("new", 1100)):
        Path(f"{name}.csv").write_text(f"rate\n{rate}\n")
        assert call("import", "csv", f"{name}.csv", "--value", "rate", "--label", name, "--out", name).status == 0
    return here


COMMANDS = [("report", "old", "--format", "md", "-o"), ("compare", "old", "new", "--by", "file", "-o")]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nowhere/x", "storlab: cannot write nowhere/x: No such file or directory"),
        ("new", "storlab: cannot write new: Is a directory"),
        ("old.csv/x", "storlab: cannot write old.csv/x: Not a directory"),
        ("/proc/x", "storlab: cannot write /proc/x: "),
    ],
)
def test_where_nothing_can_be_written_is_the_users_mistake(
    imported: Path, command: tuple[str, ...], place: str, says: str
) -> None:
    before = sorted(imported.rglob("*"))
    ran = call(*command, place)
    assert (ran.status, ran.output) == (2, "")
    assert ran.message.startswith(says) and ran.message.count("\n") == 1
    assert sorted(imported.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.needs("root")
def test_a_full_disk_leaves_the_old_report_and_no_half_of_a_new_one(imported: Path, command: tuple[str, ...]) -> None:
    with tmpfs(imported / "disk", "8k") as disk:
        (disk / "report").write_text("the old one")
        (disk / "rest").write_bytes(b"x" * 4096)
        ran = call(*command, str(disk / "report"))
        assert ran.status == 2 and ran.message == f"storlab: cannot write {disk}/report: No space left on device\n"
        assert (disk / "report").read_text() == "the old one"
        assert sorted(path.name for path in disk.iterdir()) == ["report", "rest"]


@pytest.mark.needs("root")
def test_a_run_on_a_full_disk_keeps_its_old_page_and_the_new_one_may_go_elsewhere(imported: Path) -> None:
    with tmpfs(imported / "disk", "64k") as disk:
        subprocess.run(["cp", "-r", "old", disk / "run"], check=True)
        (disk / "run" / "report.html").write_text("the old page")
        fill(disk / "rest")
        ran = call("report", "disk/run", "--format", "html")
        assert ran.status == 2
        assert ran.message.startswith("storlab: cannot write disk/run: No space left on device; `--output FILE`")
        assert (disk / "run" / "report.html").read_text() == "the old page"
        assert not (disk / "run" / "charts").exists()
        assert call("report", "disk/run", "--format", "html", "--output", "page.html").status == 0
        assert "</html>" in Path("page.html").read_text()


def fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(b"x" * 4096)


def test_a_link_stays_a_link_and_a_device_a_device(imported: Path) -> None:
    (imported / "link").symlink_to("real")
    assert call("report", "old", "-o", "link").status == 0
    assert (imported / "link").is_symlink()
    assert "Imported" in (imported / "real").read_text()
    assert call("report", "old", "-o", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("words", [("report", "old.csv"), ("compare", "old", "old.csv"), ("resume", "old.csv")])
def test_a_file_in_the_place_of_a_run_is_called_one(imported: Path, words: tuple[str, ...]) -> None:
    ran = call(*words)
    assert (ran.status, ran.message) == (2, "storlab: old.csv is a file, not the folder of a run\n")


@pytest.fixture
def three(here: Path) -> Path:
    """Imported: three files, a cell each."""
    files = []
    for number in range(1, 4):
        files.append(f"{number}.csv")
        Path(files[-1]).write_text(f"rate\n{1000 + number}\n")
    assert call("import", "csv", *files, "--value", "rate", "--out", "run").status == 0
    return here / "run"


def loop(path: Path) -> None:
    """What nobody can read, not even root."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.name)


def is_refused(ran: Ran, says: str) -> None:
    assert (ran.status, ran.output, ran.message) == (2, "", f"storlab: {says}\n")


@pytest.mark.parametrize(("lost", "says"), [([2], "trial 2 is missing"), ([1, 3], "trials 1, 3 are missing"), ([], "")])
def test_trials_that_are_missing_are_named(three: Path, lost: list[int], says: str) -> None:
    for trial in lost:
        shutil.rmtree(three / "trials" / f"{trial:04d}")
    ran = call("report", "run", "--format", "md")
    assert ran.status == 0
    assert ("missing from the run's folder: import the files again" in ran.output) == bool(lost)
    assert says in ran.output


def test_what_cant_be_read_of_a_run_is_named_and_not_taken_for_none(three: Path) -> None:
    (raw,) = (path for path in (three / "trials" / "0002").rglob("*.csv") if path.is_file())
    loop(raw)
    ran = call("report", "run", "--format", "md")
    assert ran.status == 0
    place = raw.relative_to(three.parent)
    assert f"trial 2: raw records cannot be read: {place} is a symbolic link" in ran.output.replace("\\", "")
    assert '"raw-unreadable"' in call("report", "run", "--format", "json").output
    loop(three / "trials" / "0001" / "trial.json")
    is_refused(call("report", "run"), "cannot read run/trials/0001/trial.json: Too many levels of symbolic links")
    loop(three / "trials")
    for words in (("report", "run"), ("compare", "run", "--by", "file")):
        lies = "all of a run lies in its own folder. Put what it leads to in its place, or remove it"
        is_refused(call(*words), f"run/trials is a symbolic link: {lies}")
    loop(three / "manifest.json")
    is_refused(call("report", "run"), "cannot read run/manifest.json: Too many levels of symbolic links")
