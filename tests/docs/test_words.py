"""Words that sound translated, or that this field has others for, stand in nothing that a reader meets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .pages import ROOT

_INSTEAD = {
    r"anew": "again",
    r"besides": "also, other than, in addition to",
    r"beneath": "underneath, underlying, below",
    r"mend(s|ed|ing)?": "fix, repair",
    r"nought": "zero",
    r"goes on with": "continues, resumes",
    r"put up": "set up",
    r"take[ns]? down": "tear down, removed",
    r"node by node": "per node",
    r"not measured in full": "incomplete cells",
    r"can't be (?:foreseen|told from)": "not yet estimable, indistinguishable from",
    r"fault of storlab's own": "internal error",
    r"no level is better than another": "no difference established yet",
    r"(?<![.,])1 (?:rounds|trials|cells|requests)": "the singular",
}
_SUFFIXES = {".md", ".py", ".rs", ".j2", ".toml", ".sh", ".js"}
_PLACES = ("README.md", "CONTRIBUTING.md", "docs", "src", "agent/src", "scripts", "tools", "examples")


def _files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--", *_PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if Path(name).suffix in _SUFFIXES]


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE)


@pytest.mark.parametrize("word", _INSTEAD)
def test_a_word_that_readers_stumble_over_is_nowhere(word: str) -> None:
    pattern = _pattern(word)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in _files()
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"say {_INSTEAD[word]}:\n" + "\n".join(found)


@pytest.mark.parametrize(("text", "finds"), [("What mends it", True), ("recommended", False), ("un-mend", False)])
def test_such_a_word_is_found_only_as_a_whole(text: str, finds: bool) -> None:
    assert bool(_pattern("mend(s|ed|ing)?").search(text)) is finds
