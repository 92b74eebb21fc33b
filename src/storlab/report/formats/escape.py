"""Foreign text made harmless: names, reasons and study files come from users, tools and kernels.

What no format may carry, ``storlab.base.text`` takes out. These add one markup language's own escapes, and leave signs
alone where they mean nothing, so that the source stays readable.
"""

from __future__ import annotations

import re

from storlab.base.text import one_line

# Anywhere: code, emphasis, links, HTML, table cells, strike-through, GitHub's formulas, headings.
# An underscore between letters is no emphasis in CommonMark.
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~$#]|(?<![^\W_])_|_(?![^\W_])")
# At the start of a line: lists, rules, headings drawn with = or -.
_MARKDOWN_START = re.compile(r"^([-+=]|\d{1,9}(?=[.)](?:\s|$)))")
# What Asciidoctor's rx.rb and asciidoctor.rb read as markup, and no more: lab notes are read unrendered, too.
# No macro is one without a bracket right after a word, and no address without // or @.
_ADOC = re.compile(
    r"[\\`{|~#^]|\*(?!\s)|(?<!\s)\*|\+(?!\s)|(?<!\s)\+|\${2,}"  # emphasis, attributes, cells, literal text
    r"|(?<![^\W_])_|_(?![^\W_])|(?<!\s)\[|\[(?=\[)|\({2,}|\((?=(?:C|R|TM)\))"
    r"|&(?=#|[A-Za-z]{2,}\d{0,2};)|<(?=[<=-])|(?<=[=-])>|>(?=>)|(?<=>)>|@(?=[\w.-]*\.)|/{2,}"
    r"|\.{3,}|={2,}|-{3,}|(?<!\s)--|--(?![a-z])|:{2,}|(?<=\s)=$"
    r"|^[.:<>\u2022]|^[,!](?==)|^=(?=\s)|^-(?=[\s-]|$)|^'(?=')"  # titles, lists, rules, blocks
    r"|(?<=^TIP):|(?<=^NOTE):|(?<=^WARNING):|(?<=^CAUTION):|(?<=^IMPORTANT):"
)
_SECOND = re.compile(r"(?<=;);")  # two end the term of a list, and the first may be the end of a reference
# "1.", "a." and "iv)" begin lists.
_ADOC_ITEM = re.compile(r"^((?:[0-9]+|[a-zA-Z])(?=\.)|[IVXivx]+(?=\)))([.)])(?=\s|$)")


def markdown(text: str) -> str:
    """``text`` so that CommonMark and GitHub's tables show it as it is, on one line."""
    escaped = _MARKDOWN.sub(lambda match: f"\\{match[0]}", one_line(text).replace("&", "&amp;"))
    return _MARKDOWN_START.sub(lambda match: match[0] + "\\" if match[0].isdigit() else f"\\{match[0]}", escaped)


def adoc(text: str) -> str:
    """``text`` so that AsciiDoc shows it as it is, on one line: signs become character references."""
    line, start = one_line(text), ""
    if item := _ADOC_ITEM.match(line):
        start, line = f"{_references(_ADOC, item[1])}&#{ord(item[2])};", line[item.end() :]
    return _references(_SECOND, start + _references(_ADOC, line))


def _references(signs: re.Pattern[str], text: str) -> str:
    return signs.sub(lambda match: "".join(f"&#{ord(sign)};" for sign in match[0]), text)
