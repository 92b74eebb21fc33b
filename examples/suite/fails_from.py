"""Stands for a test of a kernel: ``fails_from.py KERNEL FIRST`` fails in every second run from the kernel FIRST on."""

import sys
from pathlib import Path


def version(text: str) -> list[int]:
    """``6.10`` is after ``6.9``."""
    return [int(part) for part in text.split(".")]


kernel, first = sys.argv[1:]
count = Path("runs-so-far")
runs = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(runs))
sys.exit(1 if version(kernel) >= version(first) and runs % 2 else 0)
