"""The page ``docs/reference/readers.md``, from the schema of readers: ``python -m tools.readers_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from storlab.tools.kinds import reader_names
from storlab.tools.readers.rules import Reader, Rule, Sample, Table, built_in
from tools.study_reference import table

_START = """# Readers

What a [reader](../how-to/any-tool.md) is made of, and those that ship with Storlab: `reads = "NAME"` in a `command`,
`storlab import NAME FILE`, or `storlab import FILE` if the output says whose it is.

| reader | reads | metrics |
| --- | --- | --- |
"""


def reference() -> str:
    return "\n".join(_parts()).rstrip() + "\n"


def _parts() -> Iterator[str]:
    rows = []
    for name in reader_names():
        reader = built_in(name)
        metrics = ", ".join(f"`{metric}`" for metric in dict.fromkeys(rule.name for rule in reader.metrics))
        recognised = "" if reader.signatures else "; not recognised by itself"
        rows.append(f"| `{name}` | {reader.title}{recognised} | {metrics} |\n")
    yield _START + "".join(rows)
    for title, model in (
        ("A reader", Reader),
        ("Each of its `metrics`", Rule),
        ("Each of its `tables`", Table),
        ("Each of its `samples`", Sample),
    ):
        yield f"## {title}\n"
        yield from table(model)


if __name__ == "__main__":
    sys.stdout.write(reference())
