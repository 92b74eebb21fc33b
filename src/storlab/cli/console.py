"""The terminal that Rich draws on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from storlab.text import plain


class Console(RichConsole):
    """What is drawn on it is text: brackets are no markup, and only Rich itself gives orders to the terminal."""

    def __init__(self, file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(file=file, stderr=stderr, width=width, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Whoever draws says what that means, and not Rich, which would end the process."""
        raise

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))
