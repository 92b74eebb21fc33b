"""What came of the gates of ``--fail-on``, in words."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.analysis.summary import GateResult, Outcome
from storlab.report.language import format as fmt
from storlab.report.language.say import say
from storlab.report.language.words import are

OUTCOMES = {"hit": "FAILED", "passed": "passed", "undecided": "UNDECIDED", "missing": "MISSING"}


def gate_sentence(result: GateResult) -> str:
    """ "worse>3% passed. Not so: …"."""
    return f"{result.gate} {OUTCOMES[result.outcome]}. {say(result.why)}"


def gates_together(
    gates: Sequence[Sequence[GateResult]],
    *,
    allow_undecided: bool,
    failed: int = 0,
    more_rounds: bool = True,
    unsupported: bool = True,
) -> str:
    """What came of the gates of each comparison, in one sentence for all. Those without any are optional.

    ``failed``: trials that failed. ``more_rounds``: whether there can be any. ``unsupported``: whether a level can be.
    """
    count = fmt.plural(len(gates), "comparison")
    several: tuple[Outcome, ...] = ("hit", "missing", "undecided")
    found: dict[str, int] = {what: sum(any(r.outcome == what for r in of) for of in gates) for what in several}
    also = {**found, "absent, as --optional allows": sum(not of for of in gates)}

    def rest(*but: str) -> str:
        return "".join(f"; {n} {are(n)} {what}" for what, n in also.items() if n and what not in ("hit", *but))

    def lacks(what: str) -> str:
        number = found[what]
        return f"Not passed: no gate was hit, but {number} of {count} {are(number)} {what}{rest(what)}."

    if found["hit"]:
        return f"Failed: {found['hit']} of {count} hit a gate{rest()}."
    if not gates:
        return "Not passed: nothing was compared, so there is nothing that a gate could be about."
    if found["missing"]:
        here = unsupported and any(r.outcome == "missing" and r.settled for of in gates for r in of)
        remedy = " --optional FACTOR=LEVEL names levels that may be unsupported here." if here else ""
        return f"{lacks('missing')}{remedy}"
    if found["undecided"] and not allow_undecided:
        can = more_rounds and any(r.outcome == "undecided" and not r.settled for of in gates for r in of)
        remedy = f"{'More rounds may decide it; ' if can else ''}--allow-undecided lets it pass."
        return f"{lacks('undecided')} {remedy}"
    if failed:
        return f"Not passed: no gate was hit in {count}, but {fmt.plural(failed, 'trial')} failed{rest()}."
    if not any(gates):
        return f"Nothing passed or failed: {len(gates)} of {count} {are(len(gates))} absent, as --optional allows."
    return f"Passed: no gate was hit in {count}{rest()}."
