"""How commands begin and end: each loads what it needs and no more, and every end is a message and a status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import storlab.study.study
from storlab.base.errors import MissingTool, NodeLost, SafetyError, StorlabError
from storlab.cli.main import app
from storlab.cli.status import explain
from study.program import PROGRAM, call

SAMPLES = Path(__file__).parent.parent / "importing" / "golden"
CHARTS = {"altair", "vl_convert", "jinja2", "narwhals"}
STATISTICS = {"scipy", "statsmodels", "pandas"}
RUNNING = {"asyncio", "qemu", "jmespath", "tomllib"}
"""What it takes to read a study and to run it."""
FRAMES = {"polars", "numpy", "rich", "orjson", "msgspec"} | RUNNING
STUDIES = {"storlab.registry", "storlab.study.study", "storlab.run.executor"}
READING = {"rich", "storlab.registry", "storlab.study.study", "storlab.report"}

LISTING = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
from storlab.cli.entry import main
main()
"""


def loaded_by(*arguments: str, **environment: str) -> set[str]:
    """Modules, and the packages they are of, that this call of the program loads."""
    argv = [sys.executable, "-c", LISTING, *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    found = set(ran.stderr.rpartition("loaded:")[2].split())
    return found | {name.partition(".")[0] for name in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported") / "run"
    assert call("import", "sysbench", str(SAMPLES / "sysbench-oltp.txt"), "--out", str(folder)).status == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "needed", "others"),
    [
        ("--help", "storlab.cli.main", FRAMES | {"pydantic"}),
        ("--version", "storlab.version", FRAMES | {"pydantic"}),
        ("run --help", "storlab.cli.main", FRAMES),  # Typer reads arguments by pydantic, where that is installed
        ("no-such-command", "storlab.cli.main", FRAMES),
        ("plan --rounds x", "storlab.cli.main", FRAMES),
        (
            "plan no-such-study",
            "storlab.cli.plan.command",
            {"storlab.run.executor", "storlab.report.model", "rich.live"},
        ),
        ("import sysbench sysbench-oltp.txt --out OUT", "storlab.tools.sysbench.importer", READING | RUNNING),
        ("import bonnie bonnie-2.00a.csv --out OUT", "storlab.tools.bonnie.importer", READING | RUNNING),
        (
            "import pcap pcap-ethernet.pcap --out OUT",
            "storlab.tools.pcap.importer",
            {"polars", "numpy", "rich"} | RUNNING,
        ),
        ("report RUN --format text", "storlab.report", STUDIES | RUNNING),
        ("report RUN --format csv", "storlab.report", STUDIES | RUNNING),
    ],
)
def test_a_command_loads_what_it_needs_and_no_more(
    arguments: str, needed: str, others: set[str], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    words = [{"RUN": str(run), "OUT": str(tmp_path / "run")}.get(word, word) for word in arguments.split()]
    found = loaded_by(*words)
    assert needed in found
    assert not found & (others | CHARTS | ({"pandas"} if "no-such" in arguments else STATISTICS)), found & others
    importers = {
        f"storlab.tools.{kind}"
        for kind in ("sysbench.importer", "bonnie.importer", "fio.importer", "table.importer", "virtiofs_tests")
    }
    assert not arguments.startswith("import ") or not found & (importers - {needed})
    assert not list((tmp_path / "run").rglob("*.parquet")) or "pcap" not in arguments, "its report makes the frames"


def test_comparing_imported_runs_loads_no_charts_and_no_distributions(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    assert call("import", "sysbench", str(SAMPLES / "sysbench-oltp.txt"), "--out", str(other)).status == 0
    found = loaded_by("compare", str(run), str(other))
    assert "storlab.analysis.runs.across_runs" in found
    assert not found & (CHARTS | RUNNING | {"scipy.stats", "statsmodels", "pandas"})


def test_what_only_computes_leaves_no_threads_spinning_and_what_runs_studies_gets_the_users_own_setting(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert call("list").status == 0
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    assert call("report", str(run)).status == 0
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert call("report", str(run)).status == 0
    assert os.environ["OPENBLAS_NUM_THREADS"] == "2"


INTERRUPTED_BY_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from storlab.cli.entry import main
main()
"""


@pytest.mark.parametrize("library", ["storlab.cli.main", "typer", "storlab.cli.report"])
def test_ctrl_c_while_it_loads_its_libraries_is_no_traceback(library: str) -> None:
    argv = [sys.executable, "-c", INTERRUPTED_BY_LOADING, library]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_completion_loads_nothing_slow() -> None:
    environment = {"_STORLAB_COMPLETE": "complete_bash", "COMP_WORDS": "storlab plan ", "COMP_CWORD": "2"}
    assert not loaded_by(**environment) & (CHARTS | STATISTICS | FRAMES - {"tomllib"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    argv = [str(PROGRAM), "--show-completion", shell]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert f"complete_{shell}" in ran.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("storlab pl", {"plan"}),
        ("storlab plan qu", {"queue-depth", "quick", "quick-directory"}),
        ("storlab shell vm", {"vm-backing"}),
        ("storlab image re", {"remove"}),
        (
            "storlab report x --format ",
            {"text", "md", "html", "csv", "json", "adoc", "pdf", "bonnie", "virtiofs-tests"},
        ),
    ],
)
def test_bash_completes_commands_studies_and_formats(words: str, offered: set[str]) -> None:
    count = str(len(words.split(" ")) - 1)
    environment = {**os.environ, "_STORLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    ran = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=60, env=environment)
    assert set(ran.stdout.split()) == offered


COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    for option in ("--help", "-h"):
        ran = call(command, option)
        assert ran.status == 0 and ran.message == "" and ran.output.startswith(f"Usage: storlab {command}")
        assert max(map(len, ran.output.splitlines())) <= 80


def test_the_list_of_commands_cuts_no_sentence_short_and_the_version_is_a_line() -> None:
    ran = call("--help")
    assert ran.status == 0 and "..." not in ran.output.replace("[ARGS]...", "")
    assert all(f"\n  {command} " in ran.output for command in COMMANDS)
    assert call().status == 2
    ran = call("--version")
    assert (ran.status, ran.output.split()[0], ran.output.count("\n")) == (0, "storlab", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan", "Missing argument 'STUDY'"), ("plan quick other", "unexpected extra argument"),
        ("pln quick", "Did you mean 'plan'?"), ("plan quick --sed 1", "--seed"),
        ("plan quick --rounds 0", "--rounds"), ("plan quick --rounds many", "--rounds"),
        ("plan quick --seed -1", "--seed"), ("plan quick --set seze=1G", "did you mean 'size'?"),
        ("plan quick --only fs=zfs", "fs has no level 'zfs'"), ("plan quik", "did you mean 'quick'?"),
        ("run quik", "did you mean 'quick'?"),
        ("run quick --set repeat.max=0", "--set repeat.max=0: 0 should be at least 1"),
        ("run quick --set repeat.min=500", "min = 500 is more than max"), ("report nowhere", "nowhere"),
        ("report . --format docx", "docx"), ("resume nowhere", "nowhere"), ("clean nowhere", "nowhere"),
        ("run", "name a study: `storlab list` shows"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_arguments_has_status_2(arguments: str, says: str, here: Path) -> None:
    ran = call(*arguments.split())
    assert ran.status == 2, ran
    assert says in ran.message and ran.output == "" and "Traceback" not in ran.message
    assert list(here.iterdir()) == []


def test_a_fault_of_ours_is_one_sentence_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(storlab.study.study, "parse_study", break_down)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = call("plan", "quick")
    assert ran.status == 1 and "Traceback" not in ran.message
    assert ran.message.startswith("storlab: internal error, ZeroDivisionError: a bug\n")
    (file,) = tmp_path.iterdir()
    assert str(file) in ran.message
    assert "in break_down" in file.read_text()


def test_a_fault_of_ours_is_told_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    try:
        raise KeyError("x")
    except KeyError as error:
        assert explain(error) == 1
    assert f"its place: {__file__}:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SafetyError("no"), 2), (MissingTool("no"), 2), (NodeLost("no"), 1), (StorlabError("no"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1), (OSError(28, "No space left on device", "/x"), 1),
    ],
)  # fmt: skip
def test_every_kind_of_error_is_a_message_and_a_status(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error) == status
    said = capsys.readouterr().err
    assert said.startswith("storlab: ") and said.count("\n") == 1
    assert "No space" not in str(error) or all(each in said for each in ("no space left", "/x", "storlab resume"))


@pytest.mark.parametrize("command", ["list", "schema", "plan quick-directory"])
def test_a_reader_that_has_seen_enough_is_no_fault(command: str) -> None:
    reader = f"set -o pipefail; {PROGRAM} {command} | head -1 >/dev/null"
    ran = subprocess.run(["bash", "-c", reader], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_ctrl_c_while_planning_has_the_status_of_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storlab.study.study, "parse_study", interrupt)
    assert call("plan", "quick").status == 130
