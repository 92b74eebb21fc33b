"""What a crash check found, as it is recorded in ``crash.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

# What ``broken`` of so many moments says of all moments: an exact interval.
#
# C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
# Biometrika 26 (1934). It covers at least as often as it says, for every number of moments.

CONFIDENCE = 0.95


def exact_interval(broken: int, moments: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Lower and upper limit of the share of moments at which a cut breaks something. ``moments`` ≥ 1."""
    from scipy.special import betaincinv  # without what scipy.stats takes to load

    tail = (1 - confidence) / 2
    lower = float(betaincinv(broken, moments - broken + 1, tail)) if broken else 0.0
    upper = float(betaincinv(broken + 1, moments - broken, 1 - tail)) if broken < moments else 1.0
    return lower, upper


Kind = Literal["lost", "torn", "unusable"]


@dataclass(frozen=True)
class Broken:
    """What a cut broke. ``unusable``: what should hold the data cannot be used or is inconsistent itself."""

    kind: Kind
    reason: str


@dataclass(frozen=True)
class Cut:
    """One power cut: after how many ``entries`` of the log, of which so many requests were ``in_flight``.

    ``acknowledged``: commits by then. ``broken``: ``None`` where all was recovered.
    """

    number: int
    entries: int
    in_flight: int
    acknowledged: int
    broken: Broken | None


@dataclass(frozen=True)
class Control:
    """Something of which the answer is known. Where one is not ``passed``, no result of this set-up is believed."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class SetUp:
    """One cell of the study. ``failure``: why it could not be checked. ``entries``: of the load, in its log.

    ``early``: what is broken already by a cut that loses nothing, where its settings allow that; its controls are then
    those of a durable twin.
    """

    cell: int
    levels: Mapping[str, str]
    unit: int
    entries: int = 0
    flushes: int = 0
    bytes_logged: int = 0
    acknowledged: int = 0
    controls: Sequence[Control] = ()
    cuts: Sequence[Cut] = ()
    early: str = ""
    failure: str = ""
    unsupported: bool = False

    @property
    def name(self) -> str:
        """``fs ext4, cache none``; its number where the study has no factor."""
        return ", ".join(f"{factor} {level}" for factor, level in self.levels.items()) or f"set-up {self.cell}"

    @property
    def at_risk(self) -> int:
        """At how many moments anything was in flight: at the others, a cut had nothing to lose."""
        return sum(cut.in_flight > 0 for cut in self.cuts)

    @property
    def broken(self) -> int:
        return sum(cut.broken is not None for cut in self.cuts)

    @property
    def kinds(self) -> dict[str, int]:
        return dict(sorted(Counter(cut.broken.kind for cut in self.cuts if cut.broken is not None).items()))

    @property
    def first_broken(self) -> Cut | None:
        return next((cut for cut in self.cuts if cut.broken is not None), None)

    @property
    def believed(self) -> bool:
        return not self.failure and bool(self.cuts) and all(control.passed for control in self.controls)

    @property
    def lacks_only_order(self) -> bool:
        """Whether all of its log is there, and yet a cut that loses nothing broke it."""
        return [control.passed for control in self.controls] == [True, False]

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share of moments at which a cut breaks something."""
        return exact_interval(self.broken, len(self.cuts))

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self) | {"broken": self.broken, "at_risk": self.at_risk, "believed": self.believed}
        found |= {"kinds": self.kinds}
        return found | ({"interval": list(self.interval)} if self.cuts else {})


@dataclass(frozen=True)
class CrashResult:
    """A whole check. ``left_behind``: what could not be torn down, in words."""

    run: str
    seed: int
    moments: int
    unit: int
    set_ups: Sequence[SetUp] = ()
    left_behind: Sequence[str] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        head = {"run": self.run, "seed": self.seed, "moments": self.moments, "unit": self.unit}
        return head | {
            "confidence": CONFIDENCE,
            "set_ups": [each.as_dict() for each in self.set_ups],
            "left_behind": list(self.left_behind),
        }
