"""Loads whose bytes mostly stayed in memory are told from those that measured the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest

from storlab.records.derived.in_memory import warnings

LEVELS = {1: {"bs": "4k"}, 2: {"bs": "64k"}, 3: {"bs": "1M"}}


def said(way: str, cells: Mapping[int, Sequence[float]]) -> list[str]:
    rows = [
        {"cell": cell, "node": None, "source": "storage", "metric": f"{way}.amplification", "value": value}
        for cell, values in cells.items()
        for value in values
    ]
    frame = pl.DataFrame(rows, schema_overrides={"node": pl.String})
    return [sentence.partition(":")[0] for sentence in warnings(frame, LEVELS)]


@pytest.mark.parametrize(
    ("way", "cells", "sentence"),
    [
        ("write", {1: [1.0], 2: [0.9]}, None),
        (
            "write",
            {1: [1.0], 2: [0.2, 0.1, 0.9]},
            "When the load ended, only 20 % of what was written (bs=64k) had reached the disk",
        ),
        (
            "write",
            {1: [0.0], 2: [0.499]},
            "When the load ended, only 0 % to 50 % of what was written had reached the disk",
        ),
        ("read", {1: [0.2], 2: [0.11]}, None),
        ("read", {1: [1.0], 2: [0.05], 3: [0.001]}, "read (bs=64k and bs=1M), only 0.1 % to 5 % came from the disk"),
        (
            "read",
            {1: [0.0], 2: [0.0], 3: [0.0], 4: [0.0], 5: [1.0]},
            "read in 4 of 5 cells, only 0 % came from the disk",
        ),
    ],
)
def test_cells_are_named_whose_bytes_mostly_were_not_at_the_disk(
    way: str, cells: Mapping[int, Sequence[float]], sentence: str | None
) -> None:
    found = said(way, cells)
    assert len(found) == (sentence is not None)
    assert sentence is None or found[0].endswith(sentence)
