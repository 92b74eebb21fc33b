"""How many threads libraries start, for commands that only read and compute."""

from __future__ import annotations

import os


def one_for_algebra() -> None:
    """Before NumPy is loaded: its OpenBLAS would start a thread a core, which spin for a tenth of a second for nothing.

    Our matrices are small. Not for commands that start others, which would inherit it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
