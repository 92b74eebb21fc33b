"""What each finding says, in one sentence: the words for all of ``storlab.findings``, and nothing else has any.

Most are a template whose fields are the finding's: ``{rounds:rounds}`` lists rounds, ``{have:#round}`` counts them,
``{share:%}``, ``{ratio:×}`` and ``{why:say}`` are a share, a ratio, and what another finding says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any

from storlab import findings
from storlab.base.amounts import numbered, percent, plural
from storlab.base.text import grouped
from storlab.findings import Finding
from storlab.findings.runs import BegunAgain

Words = str | Callable[[Any], str]

FEW = 4  # names of a sentence; of more, the first are named


def say(finding: Finding) -> str:
    """``finding`` as a sentence, or as the clause that it is."""
    words = all_words()[type(finding)]
    return _FORMATTER.vformat(words, (), _Fields(finding)) if isinstance(words, str) else words(finding)


@cache
def all_words() -> Mapping[type[Finding], Words]:
    """What each kind of finding says. The modules call ``say`` themselves."""
    from storlab.report.language import of_answers, of_rounds, of_runs

    return {**of_rounds.WORDS, **of_answers.WORDS, **of_runs.WORDS}


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
    "×": lambda value: times_alone(value),
    "say": say,
    ",": ", ".join,
}


def lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def first_of(names: Sequence[str]) -> str:
    """ "a, b and c"; of more than four the first three, and how many more."""
    if len(names) > FEW:
        return f"{', '.join(names[: FEW - 1])} and {len(names) - FEW + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


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


def stop(text: str) -> str:
    """``text`` with a full stop. The first letter stays: it may be the name of a level."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


_ENDLESS = 1e300  # with its inverse: beyond any ratio of measurements, and not beyond what stands for one with 0


def times(low: float | None, ratio: float, high: float | None) -> str:
    """``1.42× (1.31× to 1.54×)``; more decimals near 1, where two would hide a difference.

    An end of the interval reads as 1 only where it is nothing else in six decimals.
    """
    if low is None or high is None:
        return times_alone(ratio)
    nearest = min(abs(number - 1) for number in (low, ratio, high))
    widest = max(abs(number - 1) for number in (low, ratio, high))
    decimals = 3 if widest < 0.1 or nearest < 0.005 else 2
    while decimals < 6 and any(abs(end - 1) > 1e-8 and round(end, decimals) == 1 for end in (low, high)):
        decimals += 1
    return f"{_times(ratio, decimals)} ({_times(low, decimals)} to {_times(high, decimals)})"


def times_alone(ratio: float) -> str:
    """``1.42×``, or ``1.013×`` near 1."""
    return _times(ratio, 3 if abs(ratio - 1) < 0.1 else 2)


def endless(ratio: float) -> str:
    """``∞×`` or ``0×`` for what only a ratio with 0 is; empty for any other."""
    return "∞×" if ratio > _ENDLESS else "0×" if ratio < 1 / _ENDLESS else ""


def _times(number: float, decimals: int) -> str:
    if shown := endless(number):
        return shown
    if 0.1 <= number < 100:
        return f"{number:.{decimals}f}×"
    return f"{number:.0f}×" if 100 <= number < 1e6 else f"{number:.2g}×"


def time_words(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``7 min 40 s``, ``8 h 33 min``."""
    if seconds < 9.95:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
