"""Every finding has words, a place in the reference, and comes back from JSON."""

from pathlib import Path
from string import Formatter

import msgspec
import pytest
from tools.findings_reference import reference
from tools.sentences import found

from storlab.findings import About, AnyFinding, Finding, InTrials, OnNode, innermost, kinds
from storlab.findings.rounds import TooFewRounds
from storlab.report.language.say import WORDS, say

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "findings.md"


def test_every_kind_has_words_and_templates_name_its_fields() -> None:
    assert WORDS.keys() == set(kinds())
    for kind, words in WORDS.items():
        names = {name for _, name, _, _ in Formatter().parse(words) if name} if isinstance(words, str) else set()
        assert names <= set(kind.__struct_fields__), kind


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "again: python -m tools.findings_reference > docs/reference/findings.md"


def test_no_sentence_is_where_a_finding_belongs() -> None:
    assert not list(found())


@pytest.mark.parametrize("outer", [lambda f: OnNode("fio", "vm", f), lambda f: About("side", ("a",), f)])
def test_a_finding_about_another_comes_back_from_json_with_it(outer: type[OnNode]) -> None:
    few = TooFewRounds(1, 5)
    whole: Finding = InTrials((3, 4), outer(few))  # type: ignore[call-arg, arg-type]
    assert msgspec.json.decode(msgspec.json.encode(whole), type=AnyFinding) == whole
    assert innermost(whole) == few and say(whole).endswith("Only 1 of at least 5 rounds.")
