"""From a run's records to what reports take, and to files, for the commands that report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storlab.analysis.summary import Summary
from storlab.cli.output import warn
from storlab.cli.power_cuts import power_cuts_of
from storlab.errors import ParseError
from storlab.metrics import PROBE
from storlab.probes.stacks import NAME as SAMPLES
from storlab.probes.stacks import Profile, boxes, profile, read_output
from storlab.probes.tcp.output import ABOUT, PACKETS, kept_packets
from storlab.records.files import write_whole
from storlab.records.run_folder import RunFolder, TrialRecord, raw_folder
from storlab.records.tables import Tables
from storlab.report.model.input import ReportInput
from storlab.report.model.packets import Packets
from storlab.report.model.profiles import CpuProfile

if TYPE_CHECKING:
    from storlab.cli.console import Console


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
    from storlab.extras import has_extra, lacking
    from storlab.report.charts import all_panels
    from storlab.report.formats.html import page_of

    panels = all_panels(given, full=full)
    write_whole(run.report, page_of(given, panels).encode())
    if not has_extra("charts"):
        warn(f"storlab: the report has no charts: {lacking('charts', 'charts')}")
        return run.report
    from storlab.report.charts.panel import write_charts  # half a second: only who draws pays for it

    write_charts(panels, run.path / "charts")
    return run.report


def show_and_write(run: RunFolder, given: ReportInput, size: str = "") -> Console:
    """What a run ends with: its report in the terminal, then where the run and the page lie."""
    from storlab.cli.console import Console
    from storlab.report.formats.terminal import TerminalReport

    console = Console()
    console.print(TerminalReport(given))  # first: drawing the page takes seconds
    page = write_html(run, given)
    of = f", {size}" if size else ""
    console.print(f"\nRun:    {run.path}{of}\nReport: {page}", soft_wrap=True, markup=False)
    return console
