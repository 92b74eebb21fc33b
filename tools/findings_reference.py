"""The page ``docs/reference/findings.md``, from ``storlab.findings``: ``python -m tools.findings_reference``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from msgspec.structs import fields

from storlab import findings
from storlab.findings import Finding, answers, rounds, runs

_START = """# Findings

What `summary.json`, `storlab report --format json`, the records of trials and manifests hold of everything that was
found or is to be warned of: an object each, with its `type` and the fields below. Numbers are in base units, a share of
0.05 is 5 %. What a finding says in words is no part of the data.
"""
_GROUPS = (
    ("About other findings", findings), ("Rounds, and why there is no ratio", rounds), ("Answers", answers),
    ("Runs, records and series", runs),
)  # fmt: skip


def reference() -> str:
    """The page."""
    page = _START
    for title, module in _GROUPS:
        page += f"\n## {title}\n\n| `type` | what | fields |\n| --- | --- | --- |\n"
        page += "".join(_row(kind) for kind in _kinds(module.__name__))
    return page


def _kinds(module: str) -> Iterator[type[Finding]]:
    homes = {module, "storlab.findings.base"} if module == "storlab.findings" else {module}
    return (kind for kind in findings.kinds() if kind.__module__ in homes)


def _row(kind: type[Finding]) -> str:
    what = " ".join((inspect.getdoc(kind) or "").replace("``", "`").split())
    names = ", ".join(f"`{field.encode_name}`" for field in fields(kind))
    return f"| `{kind.__struct_config__.tag}` | {what} | {names or '–'} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
