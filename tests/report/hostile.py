"""Text that tries to be more than text, and a run in which every name is such text."""

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st
from msgspec.structs import replace as change

from storlab.analysis.summary import CellState, Comparison, Estimate, FactDifference, Underneath
from storlab.analysis.unequal import Held, Unequal
from storlab.findings import Reported
from storlab.findings.answers import NotExamined
from storlab.nodes.agent.protocol import Kernel, Tool
from storlab.records.manifest import NodeFacts
from storlab.report.model.input import ReportInput

from .sample import sample, with_one_load

# fmt: off
HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "{{ 7*7 }} {% raw %}",
    "a|b||c", "**bold** _em_ `code` ~~gone~~ [link](http://evil.example) ![i](http://evil.example/x.png)",
    "[bold red]markup[/bold red] [/] [link=http://evil.example]x[/link]", "# heading", "1. item", "1) item", "- item",
    "+ item", "= title", "=== title", "---", "***", "> quote", "$x^2$ and $$y$$", "&amp; &lt; &#60;",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07", "line one\nline two\r\nline three\tend", "\u202egnp.exe\u202c",
    "include::/etc/passwd[]", "ifdef::x[]", ":attribute: value", "{asciidoctor-version} {empty}",
    "link:http://evil.example[x] http://evil.example user@evil.example", "image::http://evil.example/x.png[]", "|===",
    "----", "....", "====", "//// comment", "// comment", "[source]", "[[anchor]] <<xref>> ((index))", "NOTE: a note",
    "term:: definition", "(C) (R) (TM) -- ... -> => <- <=", "'quoted' \"quoted\" don't '`smart`'",
    "+++pass+++ pass:[x] ++x++", "a. item", "iv) item", "xxxviii) item", "123456. item", ". item", ".Title", "* item",
    "<1> callout", "'''", "<<<", "+", "\\ \\* \\[ \\\\", "x^2^ H~2~O #mark# ##mark## *b* __u__ *_x_*", "`+literal+`",
    "  indented", "\ud800 lone surrogate", "", " ", "=cmd|'/C calc'!A0", "datum.value + alert(1)", "'); alert(1); ('",
    "very-long-" * 40, "🏻", "\u200b\u2060", "\u0301", "x \ufe0f y",
)
# fmt: on


invisible = st.text("🏻🏿\u200b\u200d\u2060\u0301\u0338\ufe0f ", max_size=40)
"""Of letters that take no room of their own."""

texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(st.sampled_from(list("<>&\"'`*_[]{}()#+-.!|~$\\^=:;/@ \n\taB1")), max_size=12).map("".join),
    st.text(max_size=20),
    invisible,
)


@cache
def _sample() -> ReportInput:
    return with_one_load(sample())


def hostile_run(text: str) -> ReportInput:
    """The sample, with ``text`` for a level, a metric, a reason, a warning, the title, facts and the study."""
    given = _sample()
    summary = given.summary
    # Levels are columns of Parquet files, which hold UTF-8: no lone surrogate gets there.
    level_name = text.encode("utf-8", "replace").decode()

    def named(levels: dict[str, str]) -> dict[str, str]:
        levels = {**levels, "of all cells": level_name}
        return {name: level_name if level == "xfs" else level for name, level in levels.items()}

    def estimate(e: Estimate) -> Estimate:
        return replace(e, levels=named(e.levels), warnings=(Reported(text),))

    def comparison(c: Comparison) -> Comparison:
        a, b = (level_name if level == "xfs" else level for level in (c.a, c.b))
        return replace(
            c, a=a, b=b, reason=Reported(text), warnings=(Reported(text),), why=why(c.why) if c.why else None
        )

    def why(found: Underneath) -> Underneath:
        differences = tuple(
            replace(d, metric=text, noun=d.noun and text, source=f"probe:x@{text}", alike=(text,))
            for d in found.differences
        )
        return replace(
            found,
            differences=differences,
            facts=(FactDifference(text, text, f"{text} "),),
            left_out=NotExamined(((text, text),), 0),
        )

    def state(cell: CellState) -> CellState:
        return replace(cell, levels=named(cell.levels), reasons=(text,) if cell.reasons else ())

    assert given.manifest
    manifest = change(
        given.manifest, description=text, study_text=f"{text}\n----\n```\n|===\n</pre>{text}", study_file=text,
        run=text, storlab=text, argv=("storlab", "run", text),
        nodes={text: NodeFacts(text, Kernel(text, text, text), modules=[text], tools={text: Tool(text, text)})},
        platform_notes=(text,), cautions=(text,),
    )  # fmt: skip
    return replace(
        given,
        summary=replace(
            summary, title=text, stopped=Reported(text),
            warnings=(Reported(text),), cells=tuple(map(state, summary.cells)),
            unequal=(Unequal("nodes", text, text, (Held(text, (text,), (1,), (1,)), Held("b", (text,), (1,), (1,)))),),
            estimates=tuple(map(estimate, summary.estimates)), comparisons=tuple(map(comparison, summary.comparisons)),
            by_node=tuple(replace(estimate(e), node=text) for e in summary.by_node),
        ),
        manifest=manifest,
        facts={1: {text: {text: {text: text, "on": text, "sync": text, "cache": "unsafe"}}}},
        guests={1: {text: {text: text, "cpu": text, "pinning": {text: [text]}, "memory": text, "boot_seconds": text}}},
    )  # fmt: skip
