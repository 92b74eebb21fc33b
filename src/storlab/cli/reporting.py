"""From a run's records to what reports take, and to files; what a run ends with, and its power cuts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storlab.analysis.summary import Summary
from storlab.base.errors import MissingTool, ParseError, StorlabError, UserError
from storlab.cli.output import NAMES, show_json, until_closed, warn
from storlab.cli.status import (
    GATE_HIT,
    GATE_MISSING,
    INTERRUPTED,
    LEFT_BEHIND,
    NODE_UNREACHABLE,
    NOTHING_MEASURED,
    TRIALS_FAILED,
    Status,
    of_gates,
)
from storlab.metrics import PROBE
from storlab.probes.stacks import NAME as SAMPLES
from storlab.probes.stacks import Profile, boxes, profile, read_output
from storlab.probes.tcp.output import ABOUT, PACKETS, kept_packets
from storlab.records.files import write_whole
from storlab.records.run_folder import RunFolder, TrialRecord, raw_folder
from storlab.records.tables import Tables
from storlab.report.model.input import CpuProfile, Packets, ReportInput

if TYPE_CHECKING:
    from storlab.cli.console import Console
    from storlab.crash.results import SetUp
    from storlab.report.model.input import PowerCuts
    from storlab.run.executor import Outcome
    from storlab.run.permissions import Permissions
    from storlab.study.study import Study


FOLDER = "crash"
"""In a run's folder."""


def refuse_unchecked(study: Study) -> None:
    """Before any round. Raises ``UserError`` where a study asks for power cuts that can't be tried."""
    if study.model.crash is None:
        return
    from storlab.crash.logged import logged_study

    try:
        logged_study(study)
    except UserError as error:
        raise UserError(f"{study.file}: [crash]: {error}") from None
    if os.geteuid() != 0:
        raise MissingTool("[crash]: what a power cut leaves is mounted here, and so this must run as root: use sudo")


def cut_power(outcome: Outcome, permissions: Permissions, *, quiet: bool) -> None:
    """Try what the study asks for, where the rounds ended and nobody has yet. What fails is a warning."""
    folder = outcome.folder.path / FOLDER
    study = outcome.folder.manifest.study()
    if study.model.crash is None or outcome.ending == "interrupted" or outcome.left_behind or folder.exists():
        return
    import asyncio

    from storlab.cli.progress import observer
    from storlab.crash.run import RECORDS, Asked, crash_check

    found = next(cell.crash for cell in study.cells if cell.crash is not None)
    asked = Asked(found.moments, found.unit, outcome.folder.manifest.seed)
    with observer(quiet) as watching:
        try:
            result = asyncio.run(crash_check(study, folder, asked, watching, permissions))
        except asyncio.CancelledError:
            warn(f"storlab: the power cuts were interrupted; `storlab crash {study.file}` tries them by themselves")
            return
        except StorlabError as error:
            warn(f"storlab: the power cuts could not be tried: {error}")
            return
    for reason in result.left_behind:
        warn(f"storlab: could not be torn down: {reason}; `storlab clean {folder / RECORDS}` tries again")


def power_cuts_of(run: RunFolder) -> tuple[PowerCuts, ...]:
    """What is known of a run's; none where no power was cut. Raises ``RecordsError``."""
    path = run.path / FOLDER
    if not path.exists():
        return ()
    from storlab.crash.run import read_result

    result = read_result(path)
    return () if result is None else tuple(map(_shown, result.set_ups))


def _shown(each: SetUp) -> PowerCuts:
    from storlab.report.model.input import PowerCuts

    if not each.believed:
        failed = next((control for control in each.controls if not control.passed), None)
        control = "" if failed is None else f"a control failed: {failed.name}: {failed.detail}"
        return PowerCuts(each.cell, each.levels, why=each.failure or control)
    return PowerCuts(
        each.cell,
        each.levels,
        moments=len(each.cuts),
        at_risk=each.at_risk,
        broken=each.broken,
        kinds=each.kinds,
        interval=each.interval,
        notes=tuple(_notes(each)),
    )


def _notes(each: SetUp) -> Iterator[str]:
    if (first := each.first_broken) is not None and first.broken is not None:
        yield f"first at moment {first.number}: {first.broken.reason}"
    if each.early:
        yield "acknowledges early, as its settings allow: a cut that loses nothing breaks it, too"


_TCP = "tcp"  # the probe that keeps packets
_PROFILE = "profile"  # the one that samples CPUs


def report_input(run: RunFolder, tables: Tables, summary: Summary) -> ReportInput:
    return ReportInput(
        summary=summary,
        trials=tables.frame("trials"),
        metrics=tables.frame("metrics"),
        series=tables.frame("series"),
        histograms=tables.frame("histograms"),
        checks=tables.frame("checks"),
        findings=tables.frame("findings"),
        declared=tables.declared(),
        manifest=run.manifest,
        facts=_facts(tables.records),
        guests=_guests(tables.records),
        power_cuts=power_cuts_of(run),
        packets=tuple(_packets(run, tables.records)),
        profiles=tuple(_profiles(run, tables.records)),
    )


def _packets(run: RunFolder, records: Iterable[TrialRecord]) -> Iterator[Packets]:
    """Those of the first trial of each cell that kept some, where its load ran if they were kept there."""
    found = set[int]()
    for record in records:
        loaded = [node for nodes in record.loads.values() for node in nodes]
        for node in sorted(record.probes.get(_TCP, []), key=lambda node: node not in loaded):
            raw = raw_folder(run.trial_folder(record.trial), node, PROBE + _TCP)
            if record.cell not in found and node in record.nodes and (raw / ABOUT).exists():
                with suppress(ParseError):  # why there are none is among the warnings
                    lines = kept_packets(raw, record.nodes[node].start, record.nodes[node].end)
                    found.add(record.cell)
                    yield Packets(record.levels, node, tuple(lines), str((raw / PACKETS).relative_to(run.path)))


def _profiles(run: RunFolder, records: Iterable[TrialRecord]) -> Iterator[CpuProfile]:
    """The samples of each cell, on each node where its CPUs were sampled, of all of its trials together."""
    found: dict[tuple[int, str], tuple[TrialRecord, list[Profile]]] = {}
    for record in records:
        for node in record.probes.get(_PROFILE, []):
            raw = raw_folder(run.trial_folder(record.trial), node, PROBE + _PROFILE)
            if node in record.nodes and (raw / SAMPLES).exists():
                with suppress(ParseError):  # why there are none is among the warnings
                    window = record.nodes[node]
                    seen = profile(read_output(raw / SAMPLES), window.start, window.end)
                    found.setdefault((record.cell, node), (record, []))[1].append(seen)
    for (cell, node), (record, profiles) in sorted(found.items(), key=lambda item: item[0]):
        if any(each.samples for each in profiles):
            yield CpuProfile(cell, record.levels, node, tuple(boxes(profiles)))


def _guests(records: Iterable[TrialRecord]) -> dict[int, dict[str, Mapping[str, Any]]]:
    """Cell → node → what that virtual machine was, of each cell's last trial."""
    guests: dict[int, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        if record.guests:
            guests.setdefault(record.cell, {}).update(record.guests)
    return guests


def _facts(records: Iterable[TrialRecord]) -> dict[int, dict[str, Mapping[str, Mapping[str, Any]]]]:
    """Cell → node → layer → facts, of each cell's last trial that put its stack up."""
    facts: dict[int, dict[str, Mapping[str, Mapping[str, Any]]]] = {}
    for record in records:
        for node, layers in record.facts.items():
            named = {f"{position}. {layer['layer']}": layer for position, layer in enumerate(layers, start=1)}
            facts.setdefault(record.cell, {})[node] = named
    return facts


def write_html(run: RunFolder, given: ReportInput, *, full: bool = False) -> Path:
    """Write ``report.html``, in one step, and ``charts/``; returns the page's path. Raises ``OSError``.

    Without the extra ``charts`` it is the page alone, and a note on standard error.
    """
    from storlab.base.programs import has_extra, lacking
    from storlab.report.document import figures
    from storlab.report.formats.html import render_html
    from storlab.report.sections import page_document

    document = page_document(given, full=full)
    write_whole(run.report, render_html(document).encode())
    if not has_extra("charts"):
        warn(f"storlab: the report has no charts: {lacking('charts', 'charts')}")
        return run.report
    from storlab.report.charts.panel import write_charts  # half a second: only who draws pays for it

    write_charts(figures(document), run.path / "charts")
    return run.report


def show_and_write(run: RunFolder, given: ReportInput, size: str = "", only: Sequence[str] = ()) -> Console:
    """What a run ends with: its report in the terminal, then where the run and the page lie.

    ``only``: sections, by their ids; by default all.
    """
    from storlab.cli.console import Console
    from storlab.report.sections import report_document

    console = Console()
    document = report_document(given)
    if only:
        document = replace(document, sections=tuple(each for each in document.sections if each.id in only))
    console.show(document)  # first: drawing the page takes seconds
    page = write_html(run, given)
    of = f", {size}" if size else ""
    console.print(f"\nRun:    {run.path}{of}\nReport: {page}", soft_wrap=True, markup=False)
    return console


_MOST_ADDED = 30  # rounds that are suggested: more are better asked for after another look


def finish(outcome: Outcome, json: bool, allow_undecided: bool = False, only: Sequence[str] = ()) -> Status:
    """Report on a run that ended, here or where it is drawn; returns the exit status."""
    from storlab.cli.run_events import RunEnded, drawn_elsewhere, write_event

    try:
        if drawn_elsewhere():
            write_event(RunEnded(outcome.ending, outcome.left_behind))
        else:
            with until_closed():
                _show(outcome, json, only)
            with suppress(OSError):
                _say_how_it_ended(outcome, allow_undecided)
    except KeyboardInterrupt:
        folder = outcome.folder.path
        warn(f"storlab: interrupted; all is recorded, and `storlab report {folder}` shows it")
        return INTERRUPTED
    except OSError as error:
        if error.filename == NAMES[1]:
            warn(f"storlab: all is recorded, and `storlab report {outcome.folder.path}` shows it")
        raise
    if outcome.ending == "interrupted":
        return INTERRUPTED
    if outcome.ending == "unreachable":
        return NODE_UNREACHABLE
    if outcome.left_behind:
        return LEFT_BEHIND
    comparisons = outcome.summary.comparisons
    status = of_gates((result for c in comparisons for result in c.gates), allow_undecided=allow_undecided)
    if status is GATE_HIT:
        return status
    if outcome.ending == "failures":
        return TRIALS_FAILED
    unanswered = outcome.folder.manifest.gates and not any(c.gates or c.optional for c in comparisons)
    if unanswered or status is GATE_MISSING:
        return GATE_MISSING
    return NOTHING_MEASURED if outcome.ending == "nothing measured" else status


def _show(outcome: Outcome, json: bool, only: Sequence[str]) -> None:
    given = report_input(outcome.folder, outcome.tables, outcome.summary)
    if json:
        import orjson

        from storlab.analysis.summary import to_json

        write_html(outcome.folder, given)
        summary = orjson.loads(to_json(outcome.summary))
        answer = {"run": str(outcome.folder.path), "ending": outcome.ending, "summary": summary}
        show_json(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        console = show_and_write(outcome.folder, given, only=only)
        if (more := _more_rounds(outcome)) is not None:
            added = f"`storlab resume {outcome.folder.path} --rounds +{more}`"
            console.print(f"More rounds may decide what is open: {added}", soft_wrap=True, markup=False)


def _say_how_it_ended(outcome: Outcome, allow_undecided: bool) -> None:
    from storlab.report.language.say import say
    from storlab.report.language.words import missing
    from storlab.report.model.questions import gates_together

    if outcome.folder.manifest.gates:
        failed = sum(cell.failed for cell in outcome.summary.cells)
        gates = [c.gates for c in outcome.summary.comparisons if c.gates or c.optional]
        lacks = any(cell.status == "unsupported" for cell in outcome.summary.cells)
        warn(gates_together(gates, allow_undecided=allow_undecided, failed=failed, unsupported=lacks))
    if outcome.ending == "nothing measured":
        warn("storlab: nothing that was asked for was measured; the report says why")
    elif outcome.ending != "interrupted" and (said := missing(outcome.summary)):
        warn(f"storlab: {said}; the report says why")
    if outcome.summary.unsteady:
        warn(f"storlab: nothing is judged: {say(outcome.summary.unsteady)}")
    for what in outcome.left_behind:
        warn(f"storlab: could not be torn down: {what}")
    if outcome.left_behind:
        warn(f"storlab: `storlab clean {outcome.folder.path}` tries again")
    if outcome.ending == "interrupted":
        warn(f"storlab: interrupted; `storlab resume {outcome.folder.path}` resumes it")
    if outcome.ending == "unreachable" and (stopped := outcome.folder.manifest.stopped) is not None:
        warn(f"storlab: {say(stopped)}")


def _more_rounds(outcome: Outcome) -> int | None:
    """How many to add where a run ended with open comparisons: as many as are expected to be needed, where known."""
    unsettled = (c for c in outcome.summary.comparisons if c.verdict == "undecided" and not c.settled)
    left = [c for c in unsettled if c.rests_after is None]
    claims = any(not claim.settled for claim in outcome.summary.claims)
    if outcome.ending != "complete" or not (left or claims) or outcome.folder.manifest.assigned is not None:
        return None
    known = [c.rounds_to_decide for c in left if c.rounds_to_decide is not None]
    return min(max(known, default=10), _MOST_ADDED)
