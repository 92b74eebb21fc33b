"""The page ``docs/reference/options.md``, from the lists of options by ``python -m tools.options_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from storlab.base.allowed import Allowed, allowed, programs, tables_of

_START = """# Options of other programs

A study may write options of the programs that Storlab runs: those listed here, spelt as they are here, with values of
the kind that is said. Any other is refused when the study is read, with its key, its line and what to write instead:
one that names a file, a device, a command or an address of somebody else's has no way in. `*` stands for small
letters, digits and `_`. What Storlab sets itself comes last on each command line: nothing written here undoes it.
"""


def reference() -> str:
    """The page."""
    return _START + "".join(section for program in programs() for section in _sections(program))


def _sections(program: str) -> Iterator[str]:
    for part in tables_of(program):
        yield _section(allowed(program, part))


def _section(table: Allowed) -> str:
    title = table.whose[:1].upper() + table.whose[1:] if not table.whose.startswith("fio") else table.whose
    text = f"\n## {title}\n\nSee [{table.page.removeprefix('https://')}]({table.page}).\n\n"
    text += "| | options | each takes |\n| --- | --- | --- |\n"
    for rule in table.rules:
        text += f"| {rule.what} | {_code(rule.names)} | {_cell(rule.said)} |\n"
    if table.own:
        text += "\nStorlab's own:\n\n" + "".join(f"- `{name}`: {_cell(said)}\n" for name, said in table.own.items())
    if table.instead:
        text += "\nIn place of others:\n\n"
        text += "".join(f"- `{name}`: {_cell(said)}\n" for name, said in table.instead.items())
    return text


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(reference())
