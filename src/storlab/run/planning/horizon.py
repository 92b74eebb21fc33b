"""For how many rounds a run is planned, as far as its evidence aims at the last one (``analysis/stats/horizon.py``).

Whatever is known may decide about it, but for the round to come: so each change is in the manifest before the next
round begins, and the analysis reads it from there.
"""

from __future__ import annotations

from msgspec.structs import replace

from storlab.analysis.stats.horizon import Preset
from storlab.base.limits import ROUNDS
from storlab.records.manifest import Aim, Horizon
from storlab.run.limits import NO_LIMITS, Limits
from storlab.run.planning.design import rule_of
from storlab.study.study import Study

_SMALL = 0.03
"""A margin up to which a study looks for small differences."""
_MANY = 30  # rounds, in which these can be found
_CLEARLY_MORE = 1.25


def horizon_of(study: Study, rounds: tuple[int, int], limits: Limits = NO_LIMITS) -> Horizon | None:
    """What is to be recorded before the first of ``rounds``, at least and at most; ``None`` where these say nothing.

    A study that waits for steady state is judged by the rounds since then, and nobody knows how many there will be. If
    only a budget ends it, the first round will tell; until then the study's own number is as good as any.
    """
    most = rounds[1] if limits.minutes is None else min(rounds[1], study.model.repeat.max)
    if rule_of(study, rounds, limits).until == "steady" or most >= ROUNDS:
        return None
    margins = [asked.margin for asked in study.model.compare if asked.margin is not None]
    small = min(margins, default=1.0) <= _SMALL and most >= _MANY
    aim = study.model.repeat.aim
    preset: Preset = "A" if aim == "small differences" or (aim is None and small) else "B"
    return Horizon(preset, study.model.confidence, (Aim(0, most),))


def aiming_at(horizon: Horizon | None, last: int, begun: int) -> Horizon | None:
    """``horizon`` if the run is to end with round ``last``, as is known after as many rounds as have ``begun``."""
    if horizon is None or not begun < last < ROUNDS or last == horizon.aims[-1].last:
        return horizon
    return replace(horizon, aims=(*horizon.aims, Aim(begun, last)))


def within_budget(horizon: Horizon | None, begun: int, allowed: int) -> Horizon | None:
    """``horizon`` if the budget allows so many rounds after those that have ``begun``: if fewer, or clearly more."""
    if horizon is None or allowed < 1:
        return horizon
    before = horizon.aims[-1].last - begun
    return aiming_at(horizon, begun + allowed, begun) if not before <= allowed <= _CLEARLY_MORE * before else horizon
