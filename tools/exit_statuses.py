"""The table of exit statuses in ``docs/reference/cli.md``, which ``python -m tools.exit_statuses`` writes there."""

from __future__ import annotations

import re
from pathlib import Path

from storlab.cli.status import STATUSES

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
_TABLE = re.compile(r"\| status \| of \| means \|\n(\|.*\n)+")


def table() -> str:
    """A row for each reason, by number."""
    rows = [(str(int(each)), ", ".join(f"`{name}`" for name in each.commands) or "all", each.when) for each in STATUSES]
    lines = [("status", "of", "means"), ("---", "---", "---"), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text("utf-8")), "utf-8")
