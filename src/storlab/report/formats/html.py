"""Documents as one HTML file that needs nothing else: no network, no font, no other file.

It is whole without scripts. Its own one (``templates/report.js``) sorts and filters tables, shows values of charts, and
switches levels and scales; the page's policy allows it by its hash, and no other.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from markupsafe import escape as markup_escape

from storlab.base.errors import UserError
from storlab.base.text import plain
from storlab.report.document import Block, Document, Figure, tone_of
from storlab.report.formats import plot
from storlab.report.language import words

_TEMPLATES = Path(__file__).parent / "templates"
_TERM = re.compile(rf"(?<![\w&-])({'|'.join(words.TERMS)})(s?)(?![\w-])")


_NEEDLESS = (
    ' xmlns="http://www.w3.org/2000/svg"', ' xmlns:xlink="http://www.w3.org/1999/xlink"', ' opacity="1"',
    ' aria-hidden="true"',
)  # fmt: skip
"""What vl-convert writes, and what is so anyway within a page."""


def render_html(document: Document) -> str:
    """The page, with charts as inline SVG."""
    filters: dict[str, Callable[..., Any]] = {
        "explained": _explainer(), "runs": _runs, "kind": lambda block: type(block).__name__, "tone": tone_of,
        "drawn": _drawn, "row": plot.row, "axis": plot.axis,
    }  # fmt: skip
    page = environment(filters).get_template("document.html.j2")
    rounds = words.TERMS["round"]
    return page.render(document=document, rounds=rounds, css=style("report.css"), **script("report.js"))


def environment(filters: Mapping[str, Callable[..., Any]]) -> jinja2.Environment:
    """For templates of pages. Markup is ours and stays; every other text loses control characters and is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.filters |= filters
    return made


def script(*names: str) -> dict[str, Markup | str]:
    """These scripts as one, and the hash by which the page's policy allows it and no other."""
    text = "".join((_TEMPLATES / name).read_text("utf-8") for name in names)
    return {"script": Markup(text), "script_hash": base64.b64encode(sha256(text.encode()).digest()).decode()}


def style(name: str) -> Markup:
    """A style sheet of ours."""
    return Markup((_TEMPLATES / name).read_text("utf-8"))


def _runs(blocks: Iterable[Block]) -> list[tuple[str, list[Block]]]:
    """Blocks of one kind that follow each other, together: such figures and tables share a grid."""
    return [(kind, list(each)) for kind, each in itertools.groupby(blocks, lambda block: type(block).__name__)]


def _explainer() -> Callable[[str], Markup]:
    """Text with what our own words mean as their hover text, at the first mention of each on the page."""
    met = set[str]()

    def named(found: re.Match[str]) -> str:
        if found[1] in met:
            return found[0]
        met.add(found[1])
        return f'<abbr tabindex="0" title="{escape(words.TERMS[found[1]])}">{found[0]}</abbr>'

    return lambda text: Markup(_TERM.sub(named, str(markup_escape(plain(text)))))  # escaped before


def _drawn(figure: Figure) -> list[tuple[str, Markup]]:
    """The drawings of a chart, with the classes that say which of them is shown when: wide or slim, either scale."""
    from storlab.report.charts.theme import WIDE, WIDTH

    sizes = (("broad", WIDE), ("slim", WIDTH)) if figure.wide else (("", WIDTH),)
    found = []
    for size, width in sizes:
        for scale in ("linear", "log"):
            if scale == "linear" or figure.draw_log is not None:
                svg = figure.svg(width, log=scale == "log")
                for word in _NEEDLESS:
                    svg = svg.replace(word, "")
                root = (
                    f'class="{f"chart {size}".strip()}" role="img" aria-label="{escape(plain(figure.alt), quote=True)}"'
                )
                # vl-convert's own, which escapes the text in it
                found.append((f"{size} {scale}", Markup(svg.replace('class="marks"', root, 1))))
    return found


# A report as PDF, for those who must send one: the HTML page as Chromium prints it, with all that is folded open.

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--no-pdf-header-footer")
_SECONDS = 120


def print_page(html: str) -> bytes:
    """A whole page. Raises ``UserError`` if no browser is installed, or it prints nothing."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        remedy = "install one (`apt-get install chromium`), or print the HTML report from any browser"
        raise UserError(f"PDF needs Chromium, and none of {', '.join(_BROWSERS)} is installed: {remedy}")
    with tempfile.TemporaryDirectory(prefix="storlab-pdf-") as folder:
        page, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        page.write_text(html, "utf-8")
        # Chromium's sandbox refuses to start as root; the page's own policy lets it fetch and run nothing.
        flags = (*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={folder}/profile")
        command = [browser, *flags, f"--print-to-pdf={printed}", page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True)
            return printed.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"{browser} did not print the report: {error}") from None
