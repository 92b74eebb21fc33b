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
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
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
