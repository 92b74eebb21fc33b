"""The page ``docs/reference/limits.md``, written from the table of limits by ``python -m tools.limits_reference``."""

from __future__ import annotations

import sys

from storlab.base.amounts import size_text
from storlab.base.limits import TABLE
from storlab.base.text import grouped

_START = """# Limits

How much of anything Storlab takes. Each limit is far beyond what is of use, and bounds the memory and time that a file or a program can take up.
What is beyond is refused in one sentence, with the file, line and key if there are any, and exit status 2, unless this page says otherwise.

What is large is read piece by piece: captures, logs of loads, samples. JSON is read as deep as its parser goes, some hundred values within each other.
Formats of other tools have further limits, which their [importers](../how-to/import-results.md) name.
"""


def reference() -> str:
    """The page."""
    page = _START
    for group, limits in grouped((each.group, each) for each in TABLE).items():
        page += f"\n## {group}\n\n| at most | | beyond |\n| --- | --- | --- |\n"
        for each in limits:
            most = size_text(each.most).replace("M", " MiB").replace("G", " GiB").replace("k", " KiB")
            page += f"| {most if each.unit else f'{each.most:,}'} | {each.what} | {each.beyond} |\n"
    return page


if __name__ == "__main__":
    sys.stdout.write(reference())
