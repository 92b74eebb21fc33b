"""Rows of points: each name has a band, in which its rounds lie one under the other."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

_FILLED = 0.75  # the part of a row's height that its band and its rounds take


def rows(names: Sequence[str]) -> alt.Scale:
    """A band for each name. Padding outside is half of that between, so that row i is centred at i + ½ steps."""
    gap = 1 - _FILLED
    return alt.Scale(domain=list(names), paddingInner=gap, paddingOuter=gap / 2)


def spread(points: pl.DataFrame, column: str, names: Sequence[str]) -> pl.DataFrame:
    """``points`` with ``lane``: the row of their name, and within it downwards by ``round``, first above."""
    first, last = points["round"].min(), points["round"].max()
    span = float(str(last)) - float(str(first)) if points.height else 0.0
    part = (pl.col("round") - (first or 0)) / span - 0.5 if span else pl.lit(0.0)
    order = pl.DataFrame({column: list(names), "_row": [float(i) for i in range(len(names))]})
    joined = points.join(order, on=column, maintain_order="left")
    return joined.with_columns(lane=pl.col("_row") + part * _FILLED * 0.8).drop("_row")


def by_round(count: int) -> alt.Y:
    """The axis of ``lane``: unseen, and in step with the bands of ``rows``."""
    scale = alt.Scale(domain=[-0.5, count - 0.5], reverse=True, nice=False, zero=False)
    return alt.Y("lane:Q", axis=None, scale=scale)
