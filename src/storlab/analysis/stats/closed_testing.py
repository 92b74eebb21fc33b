"""How much evidence each of several comparisons needs, so that any false difference among them is at most α.

A set of comparisons is wrong about none of them if every set of hypotheses that could be the true ones is tested as a
whole, and "k does not differ" is rejected only where every such set with k in it is (closed testing: Marcus, Peritz and
Gabriel 1976). A set is tested by the mean of its evidence, which is evidence itself, however its members depend on each
other (Vovk and Wang 2021, "E-values: calibration, combination and applications"), and which must reach T = 1/α.

Comparisons of one *family*, the pairs of one metric in one combination, are related: where A equals B and B equals C, A
equals C. So of three levels not every set of pairs could be the true one, but each pair alone and all three; and a
family counts as one, with the mean of its own, when the mean over families is taken.

For a comparison k of family f with evidence M_k, that comes to M_k ≥ U_k, where

    B_f = T + Σ_{g≠f} max(0, T − min_j∈g M_j)
    U_k = max over sets S of f with k in them of  |S| · B_f − Σ_{j∈S, j≠k} M_j

With nothing else that is undecided it is T itself, and with m comparisons without any evidence nearly m · T, which
Bonferroni's correction always asks for. Evidence grows and falls from round to round; that any false difference is
ever claimed has a chance of at most α all the same, since the mean over the true hypotheses is evidence after any
number of rounds.

Evidence that aims at a number of rounds (``horizon``) is tuned to the goal that it must reach, so there each set is
tested by the mean of evidence that is tuned to its own size, rounded up: a member that shows a difference alone must
bring as many times 1/α as the set has members. What is needed of a comparison is then one U for each such size.

Each set may be rejected in a round of its own, and stays so. So a claim may be kept that was once right, though its
evidence, or that of others, falls later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storlab.analysis.stats.anytime import Floats
from storlab.base.text import grouped

_EACH_SET = 6  # levels, of which there are 203 partitions; of more, any set of pairs is taken for a possible one
_MOST = 1e18  # evidence beyond it changes nothing


@dataclass(frozen=True)
class Hypothesis:
    """ "``a`` and ``b`` do not differ", in a ``family``; ``log_evidence`` against it, of which nothing is 0."""

    family: Hashable
    a: str
    b: str
    log_evidence: float = 0.0


def thresholds(hypotheses: Sequence[Hypothesis], alpha: float) -> Floats:
    """U (shape ``(n,)``, each at least 1/``alpha``): what the evidence against each must reach."""
    target = 1 / alpha
    evidence = np.minimum(np.exp(np.minimum([h.log_evidence for h in hypotheses], math.log(_MOST))), _MOST)
    families = grouped((h.family, index) for index, h in enumerate(hypotheses))
    missing = {family: max(0.0, target - min(evidence[i] for i in members)) for family, members in families.items()}
    total = math.fsum(missing.values())
    found = np.empty(len(hypotheses))
    for family, members in families.items():
        base = target + max(0.0, total - missing[family])
        pairs = [(hypotheses[i].a, hypotheses[i].b) for i in members]
        found[members] = _within(pairs, evidence[members], base)
    return found


def tuned_thresholds(
    hypotheses: Sequence[Hypothesis], evidence: Callable[[int], Floats], alpha: float
) -> list[list[tuple[int, Floats]]]:
    """Of each hypothesis pairs (t, U): the evidence against it that is tuned to sets of t must reach U, for every t.

    ``evidence``: against each, tuned to sets of so many, after each round (shape ``(hypotheses, rounds)``). So is U
    (shape ``(rounds,)``); one that is not above 0 asks for nothing.
    """
    families = list(grouped((each.family, index) for index, each in enumerate(hypotheses)).values())
    sets = [_sets_of(hypotheses, members) for members in families]
    most = sum(max(map(len, each)) if each else len(own) for each, own in zip(sets, families, strict=True))
    found: list[list[tuple[int, Floats]]] = [[] for _ in hypotheses]
    fewer = 0
    while fewer < most:
        size = _rounded(fewer + 1)
        lacking = 1 / alpha - np.minimum(evidence(size), _MOST)
        own = [_Lacking(lacking, members, each, size) for members, each in zip(families, sets, strict=True)]
        nothing = np.zeros((1, lacking.shape[1]))
        before, after = [nothing], [nothing]
        for one, last in zip(own, reversed(own), strict=True):
            before.append(_joined(before[-1], one.most, size))
            after.append(_joined(after[-1], last.most, size))
        for at, (members, one) in enumerate(zip(families, own, strict=True)):
            others = _joined(before[at], after[len(own) - 1 - at], size)
            for index in members:
                sums = _joined(others, one.beside(index), size)[fewer + 1 :]
                if len(sums) and ((needed := sums.max(axis=0) + 1 / alpha) > 0).any():
                    found[index].append((size, needed))
        fewer = size
    return found


def _joined(one: Floats, other: Floats, size: int) -> Floats:
    """The most that so many (index) lack together, some of which are among ``one`` and the rest among ``other``."""
    found = np.full((min(len(one) + len(other) - 1, size + 1), one.shape[1]), -math.inf)
    for count, lacks in enumerate(one[: size + 1]):
        part = other[: len(found) - count]
        found[count : count + len(part)] = np.maximum(found[count : count + len(part)], lacks + part)
    return found


class _Lacking:
    """What sets of one family lack of the evidence. ``most``: those of so many members (index) at most."""

    def __init__(self, lacking: Floats, members: Sequence[int], sets: list[frozenset[int]] | None, size: int) -> None:
        self._lacking, self._members, self._sets, self._size = lacking, members, sets, size
        self.most = self._of(members) if sets is None else self._of_sets([frozenset(), *sets])

    def beside(self, index: int) -> Floats:
        """Those of sets with a member, without what that lacks."""
        if self._sets is None:
            found = self._of([each for each in self._members if each != index])
        else:
            found = self._of_sets([each - {index} for each in self._sets if index in each])
        return np.concatenate([np.full((1, found.shape[1]), -math.inf), found])

    def _of(self, members: Sequence[int]) -> Floats:
        most = np.sort(self._lacking[list(members)], axis=0)[::-1]
        return np.concatenate([np.zeros((1, most.shape[1])), np.cumsum(most, axis=0)[: self._size]])

    def _of_sets(self, sets: Sequence[frozenset[int]]) -> Floats:
        found = np.full((min(len(self._members), self._size) + 1, self._lacking.shape[1]), -math.inf)
        for each in sets:
            if len(each) < len(found):
                found[len(each)] = np.maximum(found[len(each)], self._lacking[list(each)].sum(axis=0))
        return found


def _sets_of(hypotheses: Sequence[Hypothesis], members: Sequence[int]) -> list[frozenset[int]] | None:
    """Those of a family that may be the true ones; ``None`` where any may."""
    pairs = [(hypotheses[i].a, hypotheses[i].b) for i in members]
    levels = sorted({level for pair in pairs for level in pair})
    if len(levels) > _EACH_SET:
        return None
    return [frozenset(members[i] for i in those) for those in _possible_sets(pairs, levels)]


def _rounded(count: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, … that is no less: so much evidence is tuned to one goal for several."""
    power = 1 << max(count - 1, 0).bit_length()
    return 3 * power // 4 if power >= 4 and 3 * power // 4 >= count else power


def _within(pairs: Sequence[tuple[str, str]], evidence: Floats, base: float) -> Floats:
    lacking = base - evidence
    levels = sorted({level for pair in pairs for level in pair})
    if len(levels) > _EACH_SET:
        short = np.maximum(lacking, 0.0)
        return np.asarray(base + short.sum() - short)
    found = np.full(len(pairs), base)
    for members in _possible_sets(pairs, levels):
        together = lacking[members].sum()
        found[members] = np.maximum(found[members], base + together - lacking[members])
    return found


def _possible_sets(pairs: Sequence[tuple[str, str]], levels: Sequence[str]) -> Iterator[list[int]]:
    """Indices of the pairs whose levels are equal, for every way in which levels can be equal; each set once."""
    known = set()
    for partition in _partitions(len(levels)):
        block = dict(zip(levels, partition, strict=True))
        members = tuple(index for index, (a, b) in enumerate(pairs) if block[a] == block[b])
        if members and members not in known:
            known.add(members)
            yield list(members)


def _partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Every way to put so many into blocks: of each the number of its block, numbered as they first come."""

    def extend(head: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(head) == count:
            yield head
            return
        for block in range(max(head, default=-1) + 2):
            yield from extend((*head, block))

    return extend(())
