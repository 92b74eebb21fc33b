"""The way to standard output and standard error: what passes here is text, and no order to a terminal.

Nothing else prints (``ruff`` sees to it), except what draws (``storlab.cli.console``) and reports, which have no other
signs than text either.
"""

from __future__ import annotations

import sys

from storlab.text import plain, spelled


def show(text: str = "") -> None:
    """Print a result, or a part of it."""
    print(plain(text))


def show_json(text: str) -> None:
    """Print what programs read. It is changed in nothing, for in JSON each sign can be spelled."""
    print(spelled(text))


def warn(text: str) -> None:
    """Print on standard error what isn't the result. Raises ``OSError`` where nobody listens any more."""
    print(plain(text), file=sys.stderr, flush=True)
