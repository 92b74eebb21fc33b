"""Phases of fio's jobs, which ran one after another (``stonewall``): each job's logs count from its own start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storlab.percentiles import Ints


@dataclass(frozen=True)
class Phases:
    """``of``: the phase, from 0, of each of fio's processes, in their order; ``lengths``: of the phases, in s.

    Without either, all ran at once.
    """

    of: tuple[int, ...] = ()
    lengths: tuple[float, ...] = ()

    def of_log(self, number: int) -> int:
        """The phase of the process whose logs have this number, from 1 on."""
        return self.of[number - 1] if self.of else 0

    def intervals(self, interval: float) -> Ints:
        """The phases' lengths in whole intervals of so many s."""
        return np.floor(np.array(self.lengths or (0.0,)) / interval + 0.5).astype(np.int64)


AT_ONCE = Phases()
