"""Latency by bins: each operation is in one of them, and all cells have the same."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.report.charts.bins import histogram_chart, shares_of_bins


def histograms(*cells: dict[tuple[float, float], int]) -> pl.DataFrame:
    """Of cells 1, 2 …: edges → count."""
    rows = [
        {"cell": cell, "trial": 1, "node": "host", "job": None, "source": "job", "metric": "latency"}
        | {"lower": lower, "upper": upper, "count": count}
        for cell, bins in enumerate(cells, 1)
        for (lower, upper), count in bins.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"job": pl.String})


def shares(*cells: dict[tuple[float, float], int]) -> pl.DataFrame:
    names = {f"depth={cell}": cell for cell in range(1, len(cells) + 1)}
    return shares_of_bins(histograms(*cells), names, "job", "latency")


def of(found: pl.DataFrame, level: str) -> dict[float, float]:
    rows = found.filter(pl.col("level") == level, pl.col("share") > 0)
    return {float(f"{lower:.4g}"): share for lower, share in rows.select("lower", "share").iter_rows()}


def test_narrow_bins_are_brought_together_in_tenths_of_a_decade() -> None:
    found = shares({(1e-4, 1.02e-4): 3, (1.02e-4, 1.04e-4): 1, (1.1e-3, 1.11e-3): 4}, {(1e-2, 1.01e-2): 7})
    assert of(found, "depth=1") == {1e-4: 0.5, 1e-3: 0.5}
    assert of(found, "depth=2") == {1e-2: 1.0}
    edges = [found.filter(pl.col("level") == f"depth={number}")["lower"].to_list() for number in (1, 2)]
    assert edges[0] == edges[1] == pytest.approx([10 ** (number / 10) for number in range(-41, -18)])


def test_bins_that_a_tool_has_kept_wider_stay_as_they_are() -> None:
    found = shares({(0.0, 2e-6): 1, (2e-6, 4e-6): 2, (4e-6, 1e-5): 1}, {(2.0, math.inf): 5})
    assert of(found, "depth=1") == {1e-6: 0.25, 2e-6: 0.5, 4e-6: 0.25}
    assert of(found, "depth=2") == {2.0: 1.0}
    assert found.filter(pl.col("level") == "depth=1")["lower"].to_list() == [1e-6, 2e-6, 4e-6, 1e-5, 2.0, 4.0]


def test_operations_that_took_no_time_have_no_bin() -> None:
    found = shares({(0.0, 0.0): 5})
    assert found.height == 0
    assert histogram_chart(found, "latency", ["depth=1"]).to_dict()["layer"]


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.floats(1e-9, 1e3), st.floats(1.001, 4)).map(lambda edges: (edges[0], edges[0] * edges[1])),
            st.integers(1, 10**9),
            min_size=1,
            max_size=8,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_the_shares_of_a_cell_are_all_of_it_and_end_at_nothing(cells: list[dict[tuple[float, float], int]]) -> None:
    found = shares(*cells)
    for number in range(1, len(cells) + 1):
        own = found.filter(pl.col("level") == f"depth={number}")
        assert own["share"].sum() == pytest.approx(1.0)
        assert own["lower"].is_sorted() and own["lower"].n_unique() == own.height
        assert own["share"][-1] == 0.0


def test_a_chart_has_a_line_for_each_cell() -> None:
    found = shares({(1e-4, 1.02e-4): 3}, {(1e-2, 1.01e-2): 7})
    chart = histogram_chart(found, "latency", ["depth=1", "depth=2"]).to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["area", "line"]
    assert chart["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["depth=1", "depth=2"]
