"""The reference against what it describes: options of every command, metrics of real runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import storlab as python_interface
from laboratory.samples import sample
from storlab.cli.main import app
from storlab.metrics import without_end
from storlab.nodes.privileges import IN_A_GUEST, LOADS, TOOLS
from storlab.run.planning.metrics import metrics_of_study
from storlab.study.study import load_study

from .pages import EXAMPLES, ROOT, storlab
from .test_commands import ELSEWHERE, follow

CLI = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")

_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def _sections(page: str) -> Iterator[tuple[str, str]]:
    """Heading, text underneath."""
    for part in page.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        yield title, text


def _documented_options(text: str) -> set[str]:
    """Options in the first column of tables."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `-")]
    return {option for cell in cells for option in _OPTION.findall(cell)}


COMMANDS = "new check run shell plan noise resume report compare trace list schema doctor clean"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_the_options_of_a_command_are_those_of_its_help(command: str) -> None:
    group = typer.main.get_command(app)
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    real = {option for parameter in parameters for option in parameter.opts if option.startswith("-")}
    text = next(text for title, text in _sections(CLI) if title.startswith(f"`storlab {command}"))
    assert _documented_options(text) == real - {"--help", "-h"}


def test_every_command_has_a_section_and_no_metric_two_rules_in_one() -> None:
    real = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert {match[1] for match in re.finditer(r"^## `storlab ([a-z]+)", CLI, re.MULTILINE)} == real
    names = [(title, pattern.pattern) for title, pattern, _ in _rules()]
    assert len(names) == len(set(names))


def _rules() -> list[tuple[str, re.Pattern[str], tuple[str, str, str]]]:
    """Section, pattern of the metric's name, and (unit, better, combines)."""
    rules = []
    for title, text in _sections(METRICS):
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| `") and len(cells) == 5:
                for metric in re.findall(r"`([^`]+)`", cells[0]):
                    rules.append((title, _pattern(metric), (cells[1], cells[2], cells[3])))
    return rules


def _pattern(metric: str) -> re.Pattern[str]:
    named = {"WAY": "(read|write|trim)", "PP": r"\d+(\.\d+)?", "EVENT": "[a-z_]+", "FUNCTION": ".+", "CALLER": ".+"}
    words = re.split(r"([A-Z]{2,})", metric)
    return re.compile("".join(named.get(w, "[a-z0-9-]+") if w.isupper() else re.escape(w) for w in words))


WORKLOADS = {"log": "fio"}
"""The kinds of workloads whose names don't tell."""


def _section(source: str) -> str:
    kind, _, probe = without_end(source).partition(":")
    if probe:
        return f"Probe `{probe}`"
    return {"storage": "Storage", "backing": "Storage", "nodes": "Nodes"}.get(
        kind, f"Workload `{WORKLOADS.get(kind, kind)}`"
    )


STUDY = sample(__file__, "cases/every-metric.toml")


@pytest.mark.needs("root")
def test_every_metric_of_a_real_run_is_documented_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(STUDY)
    ended = storlab("run", "all.toml", "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = _documented(tmp_path / "run")
    guests = {"Probe `nvme`", "Probe `processes`", "Probe `share-requests`", "Probe `zfs`"}
    others = {"Importer `pcap`", "Importer `zfs-perf`", "Probe `tcp`", "Workload `bonnie`", "Workload `posix`"}
    others |= {"Workload `sysbench`", "Workload `pgbench`", "Probe `server`"}  # that this study has not
    others |= {"Workload `ledger`", "Workload `sql-ledger`"}
    assert found == {title for title, *_ in _rules()} - others - guests
    assert _undeclared(tmp_path / "run", tmp_path / "all.toml") == []


def test_every_metric_that_a_study_may_have_is_documented_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(STUDY)
    rules = _rules()
    for source, specs in metrics_of_study(load_study(tmp_path / "all.toml")).items():
        for spec in specs.numbers():
            name = re.sub(r"\{[a-z]+\}", "99", spec.name)
            found = {rule for title, pattern, rule in rules if title == _section(source) and pattern.fullmatch(name)}
            assert found == {(spec.unit, spec.better, spec.across)}, f"{source}: {name}"


def _undeclared(run: Path, study: Path) -> list[tuple[str, str]]:
    """Metrics of a run that nothing in its study declares as they are, by source."""
    declared = metrics_of_study(load_study(study))
    metrics = python_interface.open_run(run).metrics
    found = []
    for source, metric, *facts in metrics.select("source", "metric", "unit", "better", "across").unique().iter_rows():
        spec = declared[without_end(source)].find(metric)
        if [spec.unit, spec.better, spec.across] != facts:
            found.append((source, metric))
    return found


@pytest.mark.needs("zfs")
def test_the_page_on_virtual_machines_does_what_it_says_and_its_metrics_are_documented(tmp_path: Path) -> None:
    (page,) = ELSEWHERE
    follow(page, tmp_path)
    assert "Probe `processes`" in _documented(tmp_path / "vms")
    assert _undeclared(tmp_path / "vms", EXAMPLES / "vm-disks.toml") == []


def _documented(run: Path) -> set[str]:
    """The sections in which the metrics of a run stand, each with its unit, direction and way to combine."""
    metrics = python_interface.open_run(run).metrics
    rules = _rules()
    for source, metric, *facts in metrics.select("source", "metric", "unit", "better", "across").unique().iter_rows():
        section = _section(source)
        found = {rule for title, pattern, rule in rules if title == section and pattern.fullmatch(metric)}
        assert found == {tuple(facts)}, f"{section}: {metric}"
    return {_section(source) for source in metrics["source"].unique()}


def test_the_privileges_of_confined_programs_are_those_that_they_get() -> None:
    page = (ROOT / "docs" / "reference" / "confinement.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*`(?:CAP_|io_uring`|root`)[^|]*) \| ([^|]+) \|$", page, re.MULTILINE)
    named = {f"workload `{kind}`": given for kind, given in LOADS.items()}
    named |= {"database servers" if tool == "server" else f"`{tool}`": given for tool, given in TOOLS.items()}
    named["any, in a guest"] = IN_A_GUEST
    has = {name: (*given.capabilities, *["io_uring"] * given.io_uring) for name, given in named.items()}
    has |= {name: ("root",) for name, given in named.items() if given.as_root and not has[name]}
    real = [(name, ", ".join(f"`{each}`" for each in has[name]), given.why) for name, given in named.items()]
    assert rows == real
