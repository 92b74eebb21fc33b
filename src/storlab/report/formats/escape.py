"""Foreign text made harmless: names, reasons and study files come from users, tools and kernels.

What no format may carry, ``storlab.text`` takes out. These add one markup language's own escapes, and leave signs alone
where they mean nothing, so that the source stays readable.
"""

from __future__ import annotations

import re

from storlab.text import one_line

# Anywhere: code, emphasis, links, HTML, table cells, strike-through, GitHub's formulas, headings.
# An underscore between letters is no emphasis in CommonMark.
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~$#]|(?<![^\W_])_|_(?![^\W_])")
# At the start of a line: lists, rules, headings drawn with = or -.
_MARKDOWN_START = re.compile(r"^([-+=]|\d{1,9}(?=[.)](?:\s|$)))")
# Everything in ASCII but letters, digits and a few signs; those signs too where they could form a token.
_ADOC = re.compile(
    r"[^\w\s.,;%/=()?!\x80-\U0010ffff'\":-]|_"
    r"|^[.=/;!-]|(?<=[.;/(=-])[.;/(=-]|[.;/(=-](?=[.;/(=-])"
    r"|\((?=(?:C|R|TM)\))"
    r"|(?<![a-z0-9]):|:(?![ 0-9])|(?<![a-zA-Z0-9)]);|(?<![^\W_])'|'(?![^\W_])"
)
# "1.", "a.", "iv)" and the like begin lists.
_ADOC_ITEM = re.compile(r"^(\w+)([.)])(?=\s|$)")


def markdown(text: str) -> str:
    """``text`` so that CommonMark and GitHub's tables show it as it is, on one line."""
    escaped = _MARKDOWN.sub(lambda match: f"\\{match[0]}", one_line(text).replace("&", "&amp;"))
    return _MARKDOWN_START.sub(lambda match: match[0] + "\\" if match[0].isdigit() else f"\\{match[0]}", escaped)


def adoc(text: str) -> str:
    """``text`` so that AsciiDoc shows it as it is, on one line: signs become character references."""
    line, start = one_line(text), ""
    if item := _ADOC_ITEM.match(line):
        start, line = f"{_references(_ADOC, item[1])}&#{ord(item[2])};", line[item.end() :]
    return start + _references(_ADOC, line)


def _references(signs: re.Pattern[str], text: str) -> str:
    return signs.sub(lambda match: "".join(f"&#{ord(sign)};" for sign in match[0]), text)
