"""What the simulations gave, as a page with tables and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import polars as pl

from benchmarks.soundness.aims import ENDS, Aimed, Power, Promised
from benchmarks.soundness.families import COUNTS, ROUNDS, Family
from benchmarks.soundness.limits import EQUAL, LOOKS, Alike, AtTheMargin, Gates, Stalling
from benchmarks.soundness.mysql import Prefix, Told
from benchmarks.soundness.noise import recorded
from benchmarks.soundness.schedule import COMBINATIONS, LEVELS, Adjacency, Resting
from benchmarks.soundness.schedule import ROUNDS as SCHEDULED
from benchmarks.soundness.series import LENGTHS, LEVELS_CHANGE, NO_TREND, FalseAlarms
from benchmarks.soundness.trials import Coverage, FalseVerdicts, Share, size
from storlab.report.charts.panel import titled
from storlab.report.charts.theme import COLOURS, INK, SHAPES, Chart, of, to_svg, width_of

_TEMPLATE = Path(__file__).resolve().with_name("page.md.j2")
_SCHEDULE = Path(__file__).resolve().with_name("schedule.md.j2")
_AIMS = Path(__file__).resolve().with_name("aims.md.j2")
_LIMITS = Path(__file__).resolve().with_name("limits.md.j2")
_DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH = 640  # px
_MANY = 20  # rounds of a fixed design
ENOUGH = 0.7  # of studies that find what four of five were planned to find
_FOUND = 0.05  # the least difference whose rounds are shown for many comparisons
METHODS = {
    "storlab": "Storlab",
    "peeked_t": "t test, peeked",
    "three_runs": "three runs, means",
    "benchstat": "benchstat, n = 10",
    "benchstat_in_a_row": "benchstat in a row",
    "benchstat_peeked": "benchstat, peeked",
    "lkp": "LKP",
    "rustc_perf": "rustc-perf",
}


@dataclass(frozen=True)
class Results:
    """All figures. ``coverage``: by machine, then by effect."""

    seed: int
    studies: int
    covered_studies: int
    power_studies: int
    false_verdicts: Sequence[FalseVerdicts]
    false_equivalence: dict[str, Share]
    coverage: dict[str, dict[str, Coverage]]
    family_studies: int
    families: Sequence[Family]
    rounds: Sequence[dict[str, float]]
    prefixes: Sequence[Prefix]
    told: dict[str, Told]
    relabelled: dict[str, Share]
    series: int
    false_alarms: Sequence[FalseAlarms]
    adjacency: Sequence[Adjacency] = ()
    resting: Sequence[Resting] = ()
    at_the_margin: Sequence[AtTheMargin] = ()
    stalling: Sequence[Stalling] = ()
    gates: Gates | None = None
    alike: Sequence[Alike] = ()
    aimed: Sequence[Aimed] = ()
    power: Sequence[Power] = ()
    promised: Sequence[Promised] = ()


def broken(found: Results) -> list[str]:
    """Bounds that surely do not hold: the whole binomial interval lies beyond."""
    wrong = [f"{row.kind}: false verdicts" for row in found.false_verdicts if row.storlab.low > 0.05]
    wrong += [f"{kind}: false equivalence" for kind, share in found.false_equivalence.items() if share.low > 0.05]
    wrong += [f"{side}, relabelled: false verdicts" for side, share in found.relabelled.items() if share.low > 0.05]
    wrong += [f"after {p.hours} h: {p.verdict}" for p in found.prefixes if p.verdict != "undecided"]
    steps = (row for row in found.false_alarms if row.kind in NO_TREND and row.in_steps.low > 0.05)
    wrong += [f"{row.kind}, {row.samples} samples: drift in steps" for row in steps]
    wrong += [f"{side}: no change of the level is told" for side, told in found.told.items() if not told.found.changes]
    for kind, effects in found.coverage.items():
        wrong += [f"{kind}, effect {effect}: coverage" for effect, of in effects.items() if of.full.high < 0.95]
        wrong += [
            f"{kind}, effect {effect}: coverage as shown" for effect, of in effects.items() if of.shown.high < 0.9
        ]
    wrong += [f"{row.setting}: any false verdict" for row in found.families if row.wrong.low > 0.05]
    wrong += [f"{row.setting}: any false verdict" for row in found.resting if row.wrong.low > 0.05]
    wrong += [f"{row.setting}, eagerly: any false verdict" for row in found.resting if row.eager.low > 0.05]
    aims = ((row.kind, share) for row in found.aimed for share in (*row.wrong, row.extended, row.cut))
    wrong += [f"{kind}: false verdicts of evidence with an aim" for kind, share in aims if share.low > 0.05]
    wrong += [f"{row.kind}: fewer are found than planned" for row in found.promised if row.found.high < ENOUGH]
    wrong += [f"{row.shape}: false equivalence" for row in found.at_the_margin if row.both[-1].low > 0.05]
    wrong += [f"{row.share}: stalls are not rare" for row in found.stalling if row.share >= 0.1 and row.rare.low > 0.05]
    wrong += ["two limits: false answers"] if found.gates is not None and found.gates.twice[-1].low > 0.05 else []
    return wrong


def page(found: Results) -> str:
    """The page, in Markdown."""
    environment = _environment()
    covered = [of for effects in found.coverage.values() for of in effects.values()]
    worst: dict[str, Any] = {
        "false": max((row.storlab for row in found.false_verdicts), key=lambda share: share.value),
        "equivalence": max(found.false_equivalence.values(), key=lambda share: share.value),
        "coverage": min((of.full for of in covered), key=lambda share: share.value),
        "shown": min((of.shown for of in covered), key=lambda share: share.value),
        "together": max((row.wrong for row in found.families), key=lambda share: share.value),
        "turned": max((row.turned for row in found.families), key=lambda share: share.value),
    }
    alarms = {kind: [row for row in found.false_alarms if row.kind == kind] for kind in _kinds(found)}
    series: dict[str, Any] = {"alarms": alarms, "lengths": LENGTHS, "levels_change": LEVELS_CHANGE}
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    together: dict[str, Any] = {"counts": COUNTS, "most": ROUNDS, "wrong": _wrong(found), "soon": _soon(found)}
    of = {"found": found, "worst": worst, "methods": METHODS, "trials": len(recorded("fio"))}
    sections = {"schedule": schedule_section(found.adjacency, found.resting), "limits": limits_section(found)}
    sections["aims"] = aims_section(found.aimed, found.power, found.promised)
    return template.render(**of, **series, **together, **_rounds(found), **sections) + "\n"


def limits_section(found: Results) -> str:
    """What is said of limits and margins."""
    of = {name: getattr(found, name) for name in ("at_the_margin", "stalling", "gates", "alike")}
    studies = found.at_the_margin[0].both[0].of
    template = _environment().from_string(_LIMITS.read_text("utf-8"))
    return template.render(**of, looks=LOOKS, equal=EQUAL, studies=studies)


def aims_section(aimed: Sequence[Aimed], power: Sequence[Power], promised: Sequence[Promised]) -> str:
    """What is said of evidence that aims at a last round."""
    template = _environment().from_string(_AIMS.read_text("utf-8"))
    return template.render(aimed=aimed, power=power, promised=promised, ends=ENDS)


def schedule_section(adjacency: Sequence[Adjacency], resting: Sequence[Resting]) -> str:
    """What is said of which trials run when."""
    variance: dict[str, list[float]] = {}
    for row in adjacency:
        variance.setdefault(row.kind, []).append(row.variance)
    of = {"variance": variance, "resting": resting, "cells": [LEVELS * c for c in COMBINATIONS], "most": SCHEDULED}
    worst = {
        "wrong": max((row.wrong.value for row in resting), default=0.0),
        "eager": max((row.eager.value for row in resting), default=0.0),
    }
    studies = resting[0].wrong.of if resting else 0
    return _environment().from_string(_SCHEDULE.read_text("utf-8")).render(**of, worst=worst, studies=studies)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True)
    environment.filters |= {"percent": _percent, "share": _share, "signed": _signed}
    return environment


def _rounds(found: Results) -> dict[str, Any]:
    """Figures of the text below the table of rounds to a verdict."""
    many = [row["ratio_twice_to_ranks"] for row in found.rounds if row["ranks"] >= _MANY]
    planned = [row["ratio_to_ranks"] for row in found.rounds]
    return {
        "planned": [f"{end:.2f}" for end in (min(planned), max(planned))],
        "twice": [f"{end:.2f}" for end in (min(many), max(many))],
        "tail": f"{max(row['most'] / row['t'] for row in found.rounds):.1f}",
        "least": f"{size(min(row['effect'] for row in found.rounds)):.2f}",
    }


def _wrong(found: Results) -> dict[str, list[Share]]:
    """By machine, the highest share of studies with any false verdict for each number of comparisons."""
    kinds = dict.fromkeys(row.setting.kind for row in found.families)
    return {kind: [_worst_of(found, kind, count) for count in COUNTS] for kind in kinds}


def _worst_of(found: Results, kind: str, comparisons: int) -> Share:
    rows = (row for row in found.families if (row.setting.kind, row.setting.comparisons) == (kind, comparisons))
    return max((row.wrong for row in rows), key=lambda share: share.value)


def _soon(found: Results) -> list[Family]:
    """Where something differs that can be found by then, in noise of a known spread: one row for each."""
    shown = (row for row in found.families if row.setting.kind == "log-normal" and row.setting.effect >= _FOUND)
    return sorted(shown, key=lambda row: (row.setting.effect, row.setting.comparisons, row.setting.families))


def _kinds(found: Results) -> list[str]:
    return list(dict.fromkeys(row.kind for row in found.false_alarms))


_LABEL = 12  # px, an axis's letters


def write_page(found: Results) -> None:
    """Into the documentation, with its chart."""
    (_DOCS / "explanation" / "soundness.md").write_text(page(found), "utf-8")
    title = "Who finds a difference where there is none"
    drawn = titled(to_svg(chart(found), width=WIDTH), title)
    (_DOCS / "images" / "soundness.svg").write_text(drawn, "utf-8")


def chart(found: Results) -> Chart:
    """Shares of false differences: a row for each kind of machine, a point for each method, a line at 5 %."""
    rows = [
        {"machine": _short(row.kind), "method": name, "share": 100 * getattr(row, key).value}
        for row in found.false_verdicts
        for key, name in METHODS.items()
        if key != "benchstat_peeked"  # more than seven are indistinguishable
    ]
    names = [name for key, name in METHODS.items() if key != "benchstat_peeked"]
    kinds = [_short(row.kind) for row in found.false_verdicts]
    room = max(width_of(kind, _LABEL) for kind in kinds)  # in whatever font a reader has
    points = (
        alt.Chart(pl.DataFrame(rows))
        .mark_point(filled=True, size=90, opacity=0.9)
        .encode(
            x=alt.X("share:Q", title="studies of A against A that find a difference, %"),
            y=alt.Y("machine:N", title=None, sort=kinds, axis=alt.Axis(minExtent=room)),
            color=alt.Color("method:N", sort=names, legend=alt.Legend(columns=3), scale=of(names, COLOURS)),
            shape=alt.Shape("method:N", sort=names, legend=alt.Legend(columns=3), scale=of(names, SHAPES)),
        )
    )
    line = alt.Chart(pl.DataFrame({"share": [5.0]})).mark_rule(strokeDash=[4, 3], color=INK).encode(x="share:Q")
    return alt.layer(line, points).properties(height=34 * len(kinds))


def _short(kind: str) -> str:
    """As long as an axis has room for."""
    return kind.removeprefix("recorded: ")


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %".replace("-", "−")


def _share(value: Share) -> str:
    return f"{100 * value.value:.1f} % ({100 * value.low:.1f} to {100 * value.high:.1f})"
