"""Foreign text made harmless: names, reasons and study files come from users, tools and kernels.

``plain`` takes out what no format may carry: control characters (a terminal obeys them), bidirectional overrides (they
make text read as something else) and lone surrogates (they can't be encoded). The others add one markup language's own
escapes, and leave signs alone where they mean nothing, so that the source stays readable.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
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


def plain(text: str) -> str:
    """``text`` without characters that a terminal or a page would act on; new lines and tabs stay."""
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """``text`` as one line with single spaces."""
    return " ".join(plain(text).split())


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
