"""Which machines did the rounds of a run."""

from __future__ import annotations

import polars as pl


def machines_of_rounds(trials: pl.DataFrame) -> dict[int, str]:
    """Which machines did each round, where several did the same cell: rounds of a merged run; else empty.

    Cells of one run may be on different machines: a level without a network is not on the one that would serve.
    """
    done = trials.filter(pl.col("status") == "done")
    if "host" not in done.columns or done.group_by("cell").agg(pl.col("host").n_unique())["host"].max() in (None, 1):
        return {}
    hosts = pl.col("host").fill_null("").unique().sort().str.join(", ")
    return dict(done.group_by("round").agg(hosts).sort("round").iter_rows())
