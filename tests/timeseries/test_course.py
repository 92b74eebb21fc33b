"""A series in few steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from storlab.timeseries.distribution import course, even_step
from storlab.timeseries.variability import Floats


@given(
    arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e6, 1e6)),
    st.floats(0.5, 20.0),
)
def test_steps_lose_no_sample_and_no_extreme(values: Floats, step: float) -> None:
    t = np.arange(1, len(values) + 1, dtype=np.float64)
    found = course(t, values, step)
    assert found.count.sum() == len(values)
    assert (found.low.min(), found.high.max()) == (values.min(), values.max())
    assert (found.mean * found.count).sum() == pytest.approx(values.sum(), abs=1e-6)
    assert (np.diff(found.t) > 0).all()


def test_a_sample_at_the_end_of_an_interval_belongs_to_it() -> None:
    found = course(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 5.0, 5.0]), 2.0)
    assert found.t.tolist() == [1.0, 3.0]
    assert found.mean.tolist() == [2.0, 5.0]
    assert found.variance.tolist() == [1.0, 0.0]


def test_a_gap_stays_a_gap() -> None:
    found = course(np.array([1.0, 9.0]), np.array([1.0, 2.0]), 2.0)
    assert found.t.tolist() == [1.0, 9.0]


def test_nothing_has_no_steps() -> None:
    assert len(course(np.zeros(0), np.zeros(0), 1.0).t) == 0


@pytest.mark.parametrize(("duration", "step"), [(30, 5), (43200, 3600), (100, 10), (600, 60), (200000, 18000)])
def test_parts_have_round_lengths(duration: float, step: float) -> None:
    assert even_step(duration, 12) == step
