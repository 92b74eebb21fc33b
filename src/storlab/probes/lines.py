"""JSON lines, as the agent's programs print them: the first says when the program started, what follows what it saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from storlab.base.errors import ParseError
from storlab.base.reading import lines_of

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""What the kernel counts, ns among them."""

T = TypeVar("T")


class Lines(Generic[T]):
    """The lines of one program: ``kinds`` of structs, of which the ``first`` line, and no other, is one.

    ``program`` is what messages call it. All methods raise ``ParseError``.
    """

    def __init__(self, kinds: Any, first: type, program: str) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kinds)
        self._first, self._program = first, program

    def decode(self, line: bytes | str, source: str = "", number: int | None = None) -> T:
        try:
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ParseError(f"is no line of {self._program}: {error}", source, number) from None

    def decode_all(self, chunk: bytes, source: str = "") -> list[T]:
        """Whole lines, faster than one by one; the error does not name the line."""
        try:
            return self._decoder.decode_lines(chunk)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ParseError(f"has a line that is none of {self._program}: {error}", source) from None

    def read(self, lines: Path | Iterable[bytes], source: str = "") -> Iterator[tuple[int, T]]:
        """The lines of a file, or with their newlines, and their numbers. A last one without a newline, as a killed
        program leaves it, is left out.
        """
        if isinstance(lines, Path):
            try:
                yield from self.read(lines_of(lines), str(lines))
            except OSError as error:
                raise ParseError(f"cannot read it: {error.strerror}", str(lines)) from None
            return
        number = 0
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                number -= 1
                break
            found = self.decode(line, source, number)
            if isinstance(found, self._first) != (number == 1):
                raise ParseError("only the first line says when it started, and it must", source, number)
            yield number, found
        if not number:
            raise ParseError(f"{self._program} has not started: there is not one whole line", source, 1)
