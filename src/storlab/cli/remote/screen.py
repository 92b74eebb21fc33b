"""What a job says, shown here as if it ran here."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable

import msgspec

from storlab.cli.output import show_bytes, show_part, until_closed, warn
from storlab.cli.run_events import Question, RunEnded, RunEvent
from storlab.errors import StorlabError

Draw = Callable[[RunEvent], None]


class _Out(msgspec.Struct, frozen=True, tag_field="event", tag="out"):
    """Of its standard output."""

    data: bytes


class _Err(msgspec.Struct, frozen=True, tag_field="event", tag="err"):
    """Of its standard error."""

    data: bytes


class _Ended(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """The job, with an exit status. ``said``: why its command could not be started."""

    status: int
    said: str = ""


_EVENTS = msgspec.json.Decoder(RunEvent | RunEnded | Question | _Out | _Err | _Ended)


class Screen:
    """Takes events, a line of JSON each. While ``draw`` is unset, they wait."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._draw: Draw | None = None
        self._waiting: list[RunEvent] = []
        self._err = codecs.getincrementaldecoder("utf-8")("replace")
        self._out = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self.ended: RunEnded | None = None

    def draw_with(self, draw: Draw | None) -> None:
        """From now on; what came meanwhile first."""
        self._draw = draw
        if draw is not None:
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                draw(event)

    def take(self, line: bytes) -> None:
        """Show one event. Raises ``StorlabError`` if it is none: it comes from another machine."""
        try:
            event = _EVENTS.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise StorlabError(f"what the other machine reported makes no sense: {error}") from None
        match event:
            case _Out():
                self._print(event.data)
            case _Err():
                *lines, self._line = (self._line + self._err.decode(event.data)).split("\n")
                for each in lines:
                    warn(each)
            case Question():
                self._ask(event.text)
            case RunEnded():
                self.ended = event
            case _Ended():
                if event.said:
                    warn(f"storlab: could not be started there: {event.said}")
            case _ if self._draw is None:
                self._waiting.append(event)
            case _:
                self._draw(event)

    def close(self) -> None:
        if self._line:
            warn(self._line)
            self._line = ""

    def _print(self, data: bytes) -> None:
        with until_closed():
            if sys.stdout.isatty():
                show_part(self._out.decode(data))
            else:
                show_bytes(data)
