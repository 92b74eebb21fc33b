"""How much of anything Storlab takes, in one table: ``docs/reference/limits.md`` is written from it.

Each is far beyond what is of use, and bounds what memory and time a file of a stranger can take. Formats of other tools
have limits of their own, where they are read.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1024, 1024**2, 1024**3

STUDY_TEXT = 4 * MIB
DOTS = 10_000
NESTING = 64
FACTORS = 64
CELLS = 10_000
CELL_PARTS = 20_000
COMPARISONS = 100_000
ROUNDS = 10_000
GROUP_NODES = 256
NODES = 1024
DISKS = 64
NAME = 63
LABEL = 60
OUTPUT = 256 * MIB
FILE = GIB
FILES = 10_000
FETCHED = 8 * GIB
SAMPLED = GIB
JOURNAL_LINE = 256 * KIB
RECORD = 256 * MIB
RAW = 256 * MIB
LINE = 16 * MIB
IMPORTED = 256 * MIB
IMPORTED_TOGETHER = GIB
IMPORTED_FILES = 10_000
IMPORTED_ROWS = 20_000


@dataclass(frozen=True)
class Limit:
    """One row. ``name`` is that of the constant, ``unit`` is ``B`` or empty for what is counted."""

    name: str
    group: str
    what: str
    unit: str = ""
    beyond: str = "refused"

    @property
    def most(self) -> int:
        return int(globals()[self.name])


_STUDY, _RUN, _RECORDS, _IMPORT = "A study", "A trial", "Records", "Import"
_FAILS = "the trial fails"

TABLE = (
    Limit("STUDY_TEXT", _STUDY, "text of a study, and of each file that it names", "B"),
    Limit("DOTS", _STUDY, "dots in a line of it"),
    Limit("NESTING", _STUDY, "tables and lists within each other"),
    Limit("FACTORS", _STUDY, "factors"),
    Limit("CELLS", _STUDY, "cells, and so the levels of a factor"),
    Limit("CELL_PARTS", _STUDY, "values and pieces of text of a cell, after words in braces were put in"),
    Limit("COMPARISONS", _STUDY, "comparisons of two levels, each in each combination with other factors"),
    Limit("ROUNDS", _STUDY, "rounds"),
    Limit("GROUP_NODES", _STUDY, "nodes of a group"),
    Limit("NODES", _STUDY, "nodes of all groups"),
    Limit("DISKS", _STUDY, "further chains of one name on a node, such as disks"),
    Limit("NAME", _STUDY, "characters of a name, and of a level that is imported"),
    Limit("LABEL", _STUDY, "characters of a level's name"),
    Limit("OUTPUT", _RUN, "output of a command", "B", _FAILS),
    Limit("FILE", _RUN, "a file that a load leaves", "B", "left out, with a note in its place"),
    Limit("FILES", _RUN, "files that the loads of a trial leave", "", _FAILS),
    Limit("FETCHED", _RUN, "these files together", "B", _FAILS),
    Limit("SAMPLED", _RUN, "samples of one probe", "B", _FAILS),
    Limit(
        "JOURNAL_LINE", _RECORDS, "a line of the journal", "B", "nothing is set up; a journal that has one is refused"
    ),
    Limit("RECORD", _RECORDS, "a record of Storlab's own, such as `manifest.json`", "B"),
    Limit("RAW", _RECORDS, "a raw file that is read at once", "B", "the trial has no figures of it, with the reason"),
    Limit("LINE", _RECORDS, "a line of a raw file that is read line by line", "B", "the same"),
    Limit("IMPORTED", _IMPORT, "a file that is read at once; captures may be of any size", "B"),
    Limit("IMPORTED_TOGETHER", _IMPORT, "such files together", "B"),
    Limit("IMPORTED_FILES", _IMPORT, "files in a folder"),
    Limit("IMPORTED_ROWS", _IMPORT, "trials of a table, in which each row may be one"),
)
"""All of them, in the order of the page."""
