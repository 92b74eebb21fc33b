"""The live view of ``storlab trace`` in terminals of any width: less of it where they are narrow, and no number cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from storlab.blockio.trace_output import Counts, Lost, Started
from storlab.cli.trace.view import Seen, TraceView

STARTED = Started(hook="btf", monotonic_ns=0, realtime_ns=0, disks=("nvme0n1",), latency=True)
COUNTS = Counts(
    final=False,
    monotonic_ns=3_000_000_000,
    realtime_ns=0,
    requests=tuple(
        ("nvme0n1", operation, "sync", length, alignment, None, 1234, (1234 * length // 4096 + 1234,) * 5)
        for operation in ("read", "write")
        for length in (512, 4096, 20480, 131072)
        for alignment in (512, 4096, 65536)
    ),
    latency=(("nvme0n1", "write", "service", 900_000, 950_000, 99), ("nvme0n1", "read", "service", 70, 75, 3)),
    others=(),
    lost=Lost(),
)


def drawn(width: int, height: int = 24) -> list[str]:
    """Lines on a terminal of that size."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, highlight=False)
    console.print(TraceView(Seen.of(STARTED, COUNTS)))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 49, 50, 60, 79, 80, 200])
def test_no_number_is_cut_and_no_line_is_too_long(width: int) -> None:
    heading, totals, *rest = drawn(width)
    assert max(map(len, [heading, totals, *rest])) <= width
    assert not [line for line in rest if "…" in line.strip()[1:]]  # at its beginning it stands for sizes left out
    assert sum("16k" in line for line in rest) == 1, "the unit that is asked for most"


def test_eighty_columns_have_room_for_all() -> None:
    text = "\n".join(drawn(80))
    for words in ("Length", "Alignment", "  4k", "  8k", "16k", "32k", "64k", "p50", "p99.9", "max", "amplification"):
        assert words in text
    assert len(drawn(80)) <= 24


def test_forty_columns_have_histograms_one_above_the_other() -> None:
    lines = drawn(40)
    (length,) = (number for number, line in enumerate(lines) if "Length" in line)
    (alignment,) = (number for number, line in enumerate(lines) if "Alignment" in line)
    assert alignment > length
    assert "32k" not in "".join(lines)
