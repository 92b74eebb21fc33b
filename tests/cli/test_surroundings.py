"""How commands end and speak: each exit status by a real run; whatever locale, terminal, umask and streams are."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from tools.exit_statuses import PAGE, table

from attacks import samples
from laboratory import Laboratory, ended, kill, wait_for
from storlab.cli import status
from study.program import PROGRAM, program

SAMPLE = Path(__file__).parent.parent / "importing" / "golden" / "sysbench-oltp.txt"
NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "ASCII": {"PYTHONIOENCODING": "ascii"}, "ISO-8859-1": {"PYTHONIOENCODING": "latin-1"},
    "a dumb terminal": {"TERM": "dumb"}, "20 columns": {"COLUMNS": "20"}, "nothing at all": {},
}  # fmt: skip
COMMANDS = {
    "list": "quick-directory", "plan quick-directory": "random-write.bs", "report RUN": "transactions",
    "report RUN --format csv": "estimate,sysbench,", "plan quik": "did you mean 'quick'?",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Imported under a umask that lets everybody write, in a locale that knows ASCII alone."""
    folder = tmp_path_factory.mktemp("µ") / "run"
    script = f"umask 000; exec {PROGRAM} import sysbench {SAMPLE} --out {folder}"
    subprocess.run(["sh", "-c", script], check=True, timeout=60, env=os.environ | NO_LOCALE)
    return folder


def test_nobody_else_can_write_what_was_made_and_an_ascii_locale_gets_signs_that_look_alike(run: Path) -> None:
    assert [path for path in run.rglob("*") if path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
    argv = [str(PROGRAM), "report", str(run)]
    ran = subprocess.run(argv, capture_output=True, timeout=60, env=os.environ | NO_LOCALE, check=True)
    assert b" . started " in ran.stdout and ran.stdout.isascii()


@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_the_same_everywhere(command: str, name: str, run: Path) -> None:
    environment = {**os.environ, **SURROUNDINGS[name]} if SURROUNDINGS[name] else {}
    ran = program(*(str(run) if word == "RUN" else word for word in command.split()), environment=environment)
    assert ran.returncode == (2 if "quik" in command else 0), ran.stderr
    assert COMMANDS[command] in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "\x1b" not in ran.stdout
    if name == "ASCII" and "csv" not in command:
        assert ran.stdout.isascii()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("--version >/dev/full", "cannot write to standard output: No space left on device"),
        ("list >/dev/full", "cannot write to standard output: No space left on device"),
        ("report RUN -f json >/dev/full", "cannot write to standard output: No space left on device"),
        ("--help >&-", "cannot write to standard output: it is closed"),
    ],
)
def test_a_result_that_can_not_be_shown_is_no_success(script: str, says: str, run: Path) -> None:
    shell = ["sh", "-c", f"{PROGRAM} {script.replace('RUN', str(run))}"]
    ran = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, f"storlab: {says}; what was to be shown there is lost\n")


HERE = Path(__file__).parent / "cases"
LOGS = HERE.parent.parent / "suite/golden/logs"
ROWS = tomllib.loads((HERE / "statuses.toml").read_text())
GATES = ("--fail-on", "worse", "--allow-undecided")


def test_the_reference_has_the_table_that_commands_decide_by_and_each_row_a_real_run() -> None:
    assert table() in PAGE.read_text(), "again: python -m tools.exit_statuses"
    tested = ["LEFT_BEHIND", "INTERRUPTED", *ROWS["elsewhere"], *(row for row, *_ in ROWS["case"] + ROWS["command"])]
    assert {id(row) for row in status.STATUSES} == {id(getattr(status, name)) for name in tested}
    for file, test, words in ROWS["elsewhere"].values():
        (body,) = re.findall(
            rf"^def {test}\(.*?(?=^(?:def|@)|\Z)", (HERE.parent.parent / file).read_text(), re.M | re.S
        )
        assert words in body


@pytest.mark.needs("root")
@pytest.mark.parametrize(("row", "only", "words", "said"), ROWS["case"])
def test_a_run_ends_with_the_status_of_its_row(row: str, only: str, words: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text((HERE / "statuses-study.toml").read_text())
    argv = ("run", "study.toml", "--only", f"build={only}", "--out", "out", "--quiet", "--json", *words.split())
    done = program(*argv, folder=tmp_path)
    assert (done.returncode, said in " ".join(done.stderr.split())) == (getattr(status, row), True), done.stderr
    assert done.returncode != status.USERS_MISTAKE or not (tmp_path / "out").exists()
    if row not in ("GATE_MISSING", "TRIALS_FAILED"):
        return
    assert "More rounds" not in done.stderr, "none would help"
    assert ("--optional" in done.stderr) is (only in ("old,zfs", "old,ext4")), "nor this, where all is supported"
    (found,) = json.loads(done.stdout)["summary"]["comparisons"]
    assert (found["verdict"], found["gates"][0]["outcome"]) == ("missing", "missing")
    for form in ("text", "md", "adoc", "csv", "json", "html") if "zfs" in only else ("text",):
        reported = program("report", "out", "--format", form, "--output", "page", folder=tmp_path)
        assert reported.returncode == 0 and "Not answered: worse" in (tmp_path / "page").read_text(), form


@pytest.mark.needs("root")
def test_commands_end_with_the_status_of_their_row_and_no_reader_that_has_seen_enough_changes_one(
    lab: Laboratory,
) -> None:
    study, out = lab.folder / "study.toml", lab.out
    shutil.copytree(HERE / "statuses", lab.folder, dirs_exist_ok=True)
    study.write_text((HERE / "statuses-study.toml").read_text())
    argv = ["run", study, "--only", "build=old,zfs", "--rounds", "1", "--quiet", "--out", out, *GATES]
    closed = ["bash", "-c", 'exec "$@" 2>/dev/null > >(exit)', "", str(PROGRAM), *map(str, argv)]
    assert subprocess.run(closed, timeout=60).returncode == status.GATE_MISSING
    places = {"@logs@": str(LOGS), "@here@": socket.gethostname()}
    for row, words, said in ROWS["command"]:
        words = re.sub("@.*?@", lambda word: places[word[0]], words)
        done = program(*words.split(), folder=lab.folder)
        found = " ".join((done.stdout + done.stderr).split())
        assert (done.returncode, said in found) == (getattr(status, row), True), (words, found)
    with (out / "journal.jsonl").open("ab") as journal:
        journal.write(samples.journal()[0].partition(b"\n")[0] + b"\n")  # of another machine
    assert lab.storlab("clean", out).status == status.LEFT_BEHIND
    running = lab.start("run", study, "--only", "build=old,near", "--out", lab.folder / "more", "--quiet")
    wait_for(running, (lab.folder / "more" / "trials").exists)
    kill(running, signal.SIGINT)
    assert ended(running).status == status.INTERRUPTED
