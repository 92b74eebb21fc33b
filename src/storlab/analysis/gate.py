"""Conditions on which a comparison of runs fails: ``worse``, ``worse>3%``, and the like.

    gate     = word [ ">" percent "%" ]
    word     = "worse" | "better" | "differs" | "missing"

``worse>3%``: sure to be worse by more than 3 %, i.e. by a factor beyond 1.03, as margins are counted. ``missing``
takes no percent: something could not be compared.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from storlab.analysis.compare import failed_of
from storlab.analysis.pairing import Pairs
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import Rules, beyond
from storlab.analysis.wording import times
from storlab.errors import UserError

Word = Literal["worse", "better", "differs", "missing"]
WORDS: tuple[Word, ...] = ("worse", "better", "differs", "missing")
Outcome = Literal["hit", "passed", "unknown"]

_FORM = re.compile(r"\s*([a-z]+)\s*(?:>\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*)?", re.ASCII)


@dataclass(frozen=True)
class Gate:
    """``beyond``: the share that the difference must exceed; ``None`` where none was given."""

    word: Word
    beyond: float | None = None

    def __str__(self) -> str:
        return self.word if self.beyond is None else f"{self.word}>{self.beyond * 100:.10g}%"


@dataclass(frozen=True)
class GateResult:
    """What came of one gate at one comparison: ``sentence`` says it for a reader who sees nothing else."""

    gate: str
    outcome: Outcome
    sentence: str


def parse_gate(text: str) -> Gate:
    """A gate as the user wrote it. Raises ``UserError``."""
    found = _FORM.fullmatch(text)
    word = next((word for word in WORDS if found and found[1] == word), None)
    if found is None or word is None or (word == "missing" and found[2] is not None):
        raise UserError(
            f"--fail-on {text!r} can't be read: write worse, better or differs, with a limit if you like "
            "('worse>3%'), or missing"
        )
    return Gate(word, None if found[2] is None else float(found[2]) / 100)


def apply(gate: Gate, comparison: Comparison, pairs: Pairs | None, rules: Rules) -> GateResult:
    """What ``gate`` says of one comparison with these ``pairs``; ``None`` where its rounds are none."""
    if gate.word == "missing":
        if comparison.ratio is None:
            return GateResult(str(gate), "hit", f"{comparison.a} and {comparison.b} can't be compared.")
        return GateResult(str(gate), "passed", "Both sides are there.")
    if comparison.ratio is None:
        return GateResult(str(gate), "unknown", f"Nothing can be said of {gate}: {comparison.reason}")
    if comparison.low is None or comparison.high is None:
        return GateResult(str(gate), "unknown", f"Too few rounds to tell whether {gate}: there is no interval.")
    if gate.word != "differs" and comparison.better == "neither":
        sentence = f"Neither direction of {comparison.metric} is better: nothing can be {gate.word}."
        return GateResult(str(gate), "unknown", sentence)
    if pairs is None:
        return _of_described(gate, comparison)
    if len(pairs.rounds) < rules.min_rounds:
        return GateResult(str(gate), "unknown", f"{len(pairs.rounds)} of at least {rules.min_rounds} rounds.")
    edge = math.log1p(gate.beyond or 0.0)
    if gate.beyond is None and gate.word != "differs":
        hit = comparison.verdict == gate.word
    else:
        signs, failed = _signs(gate.word, comparison.better), failed_of(pairs)
        hit = any(beyond(pairs.log_ratios, sign * edge, sign, rules, failed) for sign in signs)
    span = times(comparison.low, comparison.ratio, comparison.high)
    if hit:
        return GateResult(str(gate), "hit", f"{_claim(gate, comparison)}: {span}, paired by round.")
    return GateResult(str(gate), "passed", f"Not shown: {_claim(gate, comparison)}.")


def _of_described(gate: Gate, c: Comparison) -> GateResult:
    assert c.low is not None and c.ratio is not None and c.high is not None
    limit = 1 + (gate.beyond or 0.0)
    above, below = c.low > limit, c.high < 1 / limit
    signs = _signs(gate.word, c.better)
    more = "" if gate.beyond is None else f" by more than {_percent(gate.beyond)}"
    side = "" if gate.word == "differs" else f", for the {gate.word}"
    claim = f"{c.a} differs from {c.b}{more}{side}"
    if (above and 1 in signs) or (below and -1 in signs):
        sentence = (
            f"{claim}: {times(c.low, c.ratio, c.high)} with this interval, runs not interleaved, so time, the "
            "machine's state or a version may be the cause."
        )
        return GateResult(str(gate), "hit", sentence)
    return GateResult(str(gate), "passed", f"Not shown: {claim} (runs not interleaved).")


def _signs(word: Word, better: str) -> tuple[int, ...]:
    """Directions of the log ratio that the word is about."""
    if word == "differs":
        return (1, -1)
    return (1,) if (better == "higher") == (word == "better") else (-1,)


def _claim(gate: Gate, c: Comparison) -> str:
    more = "" if gate.beyond is None else f" by more than {_percent(gate.beyond)}"
    return f"{c.a} differs from {c.b}{more}" if gate.word == "differs" else f"{c.a} is {gate.word} than {c.b}{more}"


def _percent(share: float) -> str:
    return f"{share * 100:.10g} %"
