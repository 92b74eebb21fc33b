"""Importer ``dd-results``: what dd(1) printed, of one run or of several that were appended to each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from storlab.api import Importer, Part
from storlab_examples.dd import parse_dd

_BEGIN = re.compile(r"^(?=\d+\+\d+ records in$)", re.MULTILINE)


class DdImporter(Importer):
    """Each result is a trial; those of one file are rounds of one cell."""

    kind: ClassVar[str] = "dd-results"
    raw_name: ClassVar[str] = "dd.txt"
    primary: ClassVar[tuple[str, ...]] = ("write.bandwidth",)
    unknown: ClassVar[str] = "which files dd read and wrote, and with which options"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        before, *results = _BEGIN.split(text.decode(errors="replace"))
        return [Part(parse_dd(result, source)) for result in results or [before]]
