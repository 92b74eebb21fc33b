"""How NumPy is loaded by commands."""

import os


def one_thread_for_algebra() -> None:
    """Before NumPy is loaded: its OpenBLAS would start a thread a core, which spin for a tenth of a second for nothing.

    For commands that only read and compute: our matrices are small. Not for those that start others, which inherit it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
