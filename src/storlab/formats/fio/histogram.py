"""Latency histograms: fio's bins. ``storlab.percentiles`` finds percentiles in them, as in any others.

The bins are those of fio 3 (``stat.h`` and ``stat.c``: FIO_IO_U_PLAT_BITS 6, 29 groups): one bin for each
nanosecond up to 127 ns, then 64 bins of equal width to every power of two. fio prints a bin by one
value, its middle. A latency differs from the value printed for its bin by at most 1/128 (0.8 %) of itself:
that is the error of every percentile taken from bins. Bins are added without loss, so percentiles of several
jobs, nodes or trials come from their added bins; percentiles themselves are never averaged.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storlab.percentiles import Floats, Ints

_BITS = 6
_PER_GROUP = 1 << _BITS
BINS = 29 * _PER_GROUP
"""Number of bins. The last one also takes all that is longer: 17.1 s and more."""


def _edges() -> tuple[Ints, Ints, Ints]:
    """Lower edge, upper edge and fio's printed value of every bin, ns."""
    index = np.arange(BINS, dtype=np.int64)
    error_bits = np.maximum((index >> _BITS) - 1, 0)
    width = np.int64(1) << error_bits
    exact = index < 2 * _PER_GROUP
    lower = np.where(exact, index, (np.int64(_PER_GROUP) << error_bits) + (index % _PER_GROUP) * width)
    return lower, lower + width, lower + width // 2


LOWER_NS, UPPER_NS, VALUE_NS = _edges()
LOWER: Floats = LOWER_NS / 1e9
UPPER: Floats = UPPER_NS / 1e9
LAST_LOWER = float(LOWER[-1])

BIN_OF_VALUE: dict[str, int] = {str(value): index for index, value in enumerate(VALUE_NS.tolist())}
"""The bin that fio prints as this key of ``clat_ns.bins``."""


def bin_index(latency_ns: npt.ArrayLike) -> Ints:
    """The bins of latencies in ns, as fio's ``plat_val_to_idx`` has them; same shape as the input."""
    latency = np.asarray(latency_ns, dtype=np.int64)
    # A float64 has its exponent (plus 1023) in the bits from 52, the mantissa below it: together the exponent and
    # the mantissa's first bits count the bins from 64 ns on. Exact below 2^53, beyond all bins.
    index: Ints = latency.astype(np.float64).view(np.int64)
    index >>= 52 - _BITS
    index -= (1023 + _BITS - 1) * _PER_GROUP
    np.minimum(index, BINS - 1, out=index)
    return np.maximum(index, np.clip(latency, 0, _PER_GROUP - 1), out=index)
