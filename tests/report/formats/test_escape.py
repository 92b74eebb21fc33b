"""Names and messages are data: no format may take them for markup, commands or addresses."""

import csv
import html
import io
import json
import random
import re
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from storlab.base.text import cell, one_line, plain
from storlab.report.formats import render
from storlab.report.formats.escape import adoc, markdown

from ..hostile import HOSTILE, hostile_run, texts

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# fmt: off
TAGS = frozenset({
    "a", "body", "circle", "dd", "details", "div", "dl", "dt", "figcaption", "figure", "g", "h1", "h2",
    "h3", "head", "header", "html", "li", "line", "main", "meta", "nav", "ol", "p", "path", "pre", "rect",
    "section", "small", "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text", "th",
    "thead", "title", "tr", "tspan", "ul",
})
# fmt: on


@given(texts)
def test_plain_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    cleaned = plain(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", cleaned)
    cleaned.encode("utf-8")
    assert plain(cleaned) == cleaned


@given(texts)
def test_markdown_shows_a_paragraph_as_it_is(text: str) -> None:
    shown = MARKDOWN.render(markdown(text)).strip()
    assert html.unescape(shown) == (f"<p>{one_line(text)}</p>" if one_line(text) else "")


@given(texts)
def test_markdown_shows_a_table_cell_a_heading_and_an_item_as_they_are(text: str) -> None:
    shown = MARKDOWN.render(f"| {markdown(text)} | b |\n| --- | --- |\n\n# {markdown(text)}\n\n- ▲ {markdown(text)}\n")
    found = [html.unescape(cell) for cell in re.findall(r"<(?:th|h1|li)>(.*?)</(?:th|h1|li)>", shown, re.DOTALL)]
    assert found == [one_line(text), "b", one_line(text), f"▲ {one_line(text)}".strip()]


@given(texts)
def test_asciidoc_is_the_text_itself_once_its_references_are_read(text: str) -> None:
    assert html.unescape(adoc(text)) == one_line(text)


PLAIN = (
    "CPUs used by QEMU:", "the machines' disks: 4; others 5", "p99 < 5 ms [1], and > 3 ms", "R&D & more; 4 * 5 + 6",
    "read_ahead_kb = 128, path=/dev/vdb", "storlab run --build vm-backing (./x and/or y)", "-12.5 % … 1..8",
    "Yes. It is: 7.12, 3.37, 2.19", "probe:stalls@host", "\"quoted\" and 'single'",
)  # fmt: skip


def test_asciidoc_has_no_escapes_in_plain_words() -> None:
    assert [adoc(line) for line in PLAIN] == [*PLAIN]
    assert (adoc("`x` => y"), adoc("1. a")) == ("&#96;x&#96; =&#62; y", "1&#46; a")


@pytest.mark.needs("asciidoctor")
def test_asciidoc_shows_paragraphs_cells_and_items_as_they_are() -> None:
    lines = [one_line(text) for text in _many_texts() if one_line(text)]
    document = "\n\n".join(f"{adoc(line)}\n\n- ▲ {adoc(line)}\n\n|===\n|{adoc(line)}\n|===" for line in lines)
    shown = subprocess.run(
        ["asciidoctor", "-e", "-o", "-", "-"], input=document, capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    # AsciiDoc makes an apostrophe between letters a curly one: the same sign, better set.
    paragraphs = re.findall(r"<p(?: class=\"tableblock\")?>(.*?)</p>", shown.stdout, re.DOTALL)
    cells = re.findall(r"<p class=\"tableblock\">(.*?)</p>", shown.stdout, re.DOTALL)
    assert [_read(text) for text in cells] == lines
    assert [_read(text) for text in paragraphs[::3]] == lines
    assert [_read(text) for text in paragraphs[1::3]] == [f"▲ {line}" for line in lines]


def _read(shown: str) -> str:
    return html.unescape(shown).replace("’", "'")


def _many_texts() -> list[str]:
    """All hostile texts, and every pair and triple of signs, between words and at the start of a line."""
    signs = "<>&\"'`*_[]{}()#+-.!|~$\\^=:;/@%,?"
    pairs = [f"{a}{b}" for a in signs for b in signs]
    triples = [a * 3 for a in signs] + [f"{a} {b}" for a in signs for b in signs]
    draw = random.Random(20261128)
    drawn = ["".join(draw.choices([*signs, *"  \u2022aB1", "::", "--", "TIP:", "(C)"], k=9)) for _ in range(1000)]
    return [*HOSTILE, *pairs, *triples, *drawn, *(f"x{p}y {p} z" for p in pairs), *(f"{p} z" for p in pairs)]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.scripts = 0
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.scripts += tag == "script"
        self.attributes |= {name for name, _ in attrs}
        for name, value in attrs:
            if name in ("href", "src"):
                assert value is not None and value.startswith("#")


@settings(deadline=None, max_examples=2, phases=[Phase.explicit, Phase.generate])
@example([*HOSTILE])
@given(st.lists(texts, min_size=6, max_size=12))
def test_a_page_full_of_hostile_names_has_only_its_own_tags(many: list[str]) -> None:
    # A page takes a second to draw, so it has many of them at once, and none is sought that is shorter.
    parser = _Tags()
    parser.feed(render(hostile_run(" ".join(many)), "html"))
    assert parser.seen <= TAGS | {"abbr", "button", "input", "label", "script"} and parser.scripts == 1
    assert not {name for name in parser.attributes if name.startswith("on")}


def test_a_page_shows_hostile_names_as_text() -> None:
    page = render(hostile_run(" ".join(HOSTILE[:3])), "html")
    for text in HOSTILE[:3]:
        assert text not in page
        assert html.escape(text, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page


@settings(deadline=None, max_examples=25)
@given(texts)
def test_the_other_formats_survive_hostile_names(text: str) -> None:
    run = hostile_run(text)
    terminal = render(run, "text")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", terminal)
    assert "".join(one_line(text).split()) in "".join(terminal.split())
    prose = re.sub(r"^ {4}.*$", "", render(run, "md"), flags=re.MULTILINE)  # indented lines are code
    assert not re.search(r"(?<!\\)<", prose)
    render(run, "adoc").encode("utf-8")


@settings(deadline=None, max_examples=25)
@given(texts)
def test_csv_and_json_carry_hostile_names_and_csv_no_formulas(text: str) -> None:
    clean = plain(text).replace("\r", "\n")
    run = hostile_run(clean)
    rows = list(csv.DictReader(io.StringIO(render(run, "csv"))))
    assert {row["factor.filesystem"] for row in rows if row["kind"] == "estimate"} == {"ext4", "btrfs", cell(clean)}
    assert json.loads(render(run, "json"))["title"] == clean
