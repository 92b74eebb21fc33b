"""The terminal that Rich draws on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from storlab.base.text import plain
from storlab.report.document import Document
from storlab.report.formats.terminal import Shown

_LEAST = 60  # columns


class Console(RichConsole):
    """What is drawn on it is text: brackets are no markup, and only Rich itself gives orders to the terminal.

    ``live``: it is drawn over again, and so by the terminal's own width. Other results have columns enough for words
    to stay whole; a terminal that is narrower breaks their lines, which is easier to read than columns of two letters.
    """

    def __init__(
        self, file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None, live: bool = False
    ) -> None:
        super().__init__(file=file, stderr=stderr, width=width, highlight=False, markup=False, emoji=False)
        if width is None and not live and self.width < _LEAST:
            self.width = _LEAST

    def show(self, document: Document, *, full: bool = False) -> None:
        """Draw it; what is to be copied is not broken into lines, however narrow the terminal is."""
        self.print(Shown(document, full), crop=False)

    def on_broken_pipe(self) -> None:
        """Whoever draws says what that means, and not Rich, which would end the process."""
        raise

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


def show_document(document: Document) -> None:
    """All of it, on standard output."""
    Console().show(document, full=True)
