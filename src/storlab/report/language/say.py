"""What each finding says, in one sentence: the words for all of ``storlab.findings``, and nothing else has any.

Most are a template whose fields are the finding's: ``{rounds:rounds}`` lists rounds, ``{have:#round}`` counts them,
``{share:%}``, ``{ratio:×}`` and ``{why:say}`` are a share, a ratio, and what another finding says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from storlab import findings
from storlab.base.amounts import numbered, percent, plural
from storlab.base.text import grouped
from storlab.findings import Finding
from storlab.findings.runs import BegunAgain
from storlab.report.language import of_answers, of_rounds, of_runs
from storlab.report.language.phrases import Nested, Words, first_of, times_alone

WORDS: Mapping[type[Finding], Words] = {**of_rounds.WORDS, **of_answers.WORDS, **of_runs.WORDS}
"""What each kind of finding says."""


def say(finding: Finding) -> str:
    """``finding`` as a sentence, or as the clause that it is."""
    words = WORDS[type(finding)]
    if isinstance(words, str):
        return _FORMATTER.vformat(words, (), _Fields(finding))
    return words.words(finding, say) if isinstance(words, Nested) else words(finding)


def said(each: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(map(say, each))


class _Fields(dict[str, Any]):
    def __init__(self, finding: Finding) -> None:
        super().__init__({name: getattr(finding, name) for name in finding.__struct_fields__})


class _Formatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return plural(value, format_spec[1:])
        if format_spec in _FORMS:
            return _FORMS[format_spec](value)
        return str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()
_FORMS: dict[str, Callable[[Any], str]] = {
    "rounds": lambda value: numbered("round", value),
    "%": percent,
    "×": times_alone,
    "say": say,
    ",": ", ".join,
}


def once(found: Iterable[Finding]) -> list[str]:
    """What these say, in order. What is found alike on several nodes is said once for all."""
    counted: dict[tuple[str, str], dict[tuple[int, int], None]] = {}
    every = list(dict.fromkeys(found))
    for each in every:
        if isinstance(each, findings.OnNode) and isinstance(each.finding, BegunAgain):
            counted.setdefault((each.source, each.node), {}).update(dict.fromkeys(each.finding.counts))

    def about(each: Finding) -> tuple[Finding, str]:
        if not isinstance(each, findings.OnNode):
            return each, ""
        place, inner = (each.source, each.node), each.finding
        if isinstance(inner, BegunAgain):
            inner = BegunAgain(tuple(counted[place]))
        return inner, f"{each.source} on {each.node}"

    places = grouped(map(about, every))
    return [
        say(finding) if not names[0] else f"{first_of(list(dict.fromkeys(names)))}: {say(finding)}"
        for finding, names in places.items()
    ]
