"""A question to the user, who may sit at another machine."""

from __future__ import annotations

import sys

import typer


def confirmed(question: str) -> bool | None:
    """Yes or no; ``None`` if nobody is there to answer."""
    from storlab.cli.run_events import Question, drawn_elsewhere, write_event

    if drawn_elsewhere():
        sys.stdout.flush()
        write_event(Question(question))
        return {"yes": True, "no": False}.get(sys.stdin.readline().strip())
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    return typer.confirm(question)
