"""Each command loads the libraries that it needs, and no others: they take longer than the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from study.program import call

SAMPLES = Path(__file__).parent.parent / "importing" / "golden"
CHARTS = {"altair", "vl_convert", "jinja2", "narwhals"}
STATISTICS = {"scipy", "statsmodels", "pandas"}
RUNNING = {"asyncio", "qemu", "jmespath", "tomllib"}
"""What it takes to read a study and to run it."""


LISTING = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
from storlab.cli.entry import main
main()
"""


def loaded_by(*arguments: str) -> set[str]:
    """Modules, and the packages they are of, that this call of the program loads."""
    argv = [sys.executable, "-c", LISTING, *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = set(ran.stderr.rpartition("loaded:")[2].split())
    return found | {name.partition(".")[0] for name in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported") / "run"
    assert call("import", "sysbench", str(SAMPLES / "sysbench-oltp.txt"), "--out", str(folder)).status == 0
    return folder


@pytest.mark.parametrize("question", ["--help", "--version"])
def test_what_needs_no_frames_loads_not_even_polars(question: str) -> None:
    found = loaded_by(question)
    assert not found & (CHARTS | STATISTICS | RUNNING | {"polars", "numpy", "pydantic", "rich", "orjson", "msgspec"})


@pytest.mark.parametrize(
    ("kind", "file", "others"),
    [
        ("sysbench", "sysbench-oltp.txt", {"bonnie", "fio", "table", "virtiofs_tests"}),
        ("bonnie", "bonnie-2.00a.csv", {"fio", "sysbench", "table", "virtiofs_tests"}),
    ],
)
def test_an_import_loads_its_own_parser_and_no_statistics(
    kind: str, file: str, others: set[str], tmp_path: Path
) -> None:
    found = loaded_by("import", kind, str(SAMPLES / file), "--out", str(tmp_path / "run"))
    assert f"storlab.importing.{kind}" in found
    assert not found & (CHARTS | STATISTICS | RUNNING | {"rich"})
    assert not found & {f"storlab.importing.{other}" for other in others}
    assert not found & {"storlab.registry", "storlab.study.study", "storlab.report"}


def test_an_import_of_a_capture_loads_no_frames_which_its_report_makes(tmp_path: Path) -> None:
    found = loaded_by("import", "pcap", str(SAMPLES / "pcap-ethernet.pcap"), "--out", str(tmp_path / "run"))
    assert not found & (CHARTS | STATISTICS | RUNNING | {"polars", "numpy", "rich"})
    assert not list((tmp_path / "run").rglob("*.parquet"))


@pytest.mark.parametrize("name", ["text", "md", "csv", "json"])
def test_a_report_of_an_imported_run_loads_no_charts_and_nothing_that_runs_studies(name: str, run: Path) -> None:
    found = loaded_by("report", str(run), "--format", name)
    assert not found & (CHARTS | STATISTICS | RUNNING)
    assert not found & {"storlab.registry", "storlab.study.study", "storlab.run.executor"}


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
