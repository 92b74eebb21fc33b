"""The exact interval: against its definition, and against published numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from storlab.crash.interval import exact_interval


def test_none_of_thirty_is_not_safe() -> None:
    assert exact_interval(0, 30) == pytest.approx((0.0, 0.1157), abs=1e-4)  # 1 - 0.025 ** (1 / 30)
    assert exact_interval(0, 5) == pytest.approx((0.0, 0.5218), abs=1e-4)
    assert exact_interval(30, 30) == pytest.approx((0.8843, 1.0), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_each_limit_leaves_a_tail_of_a_fortieth(moments: int, data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, moments))
    lower, upper = exact_interval(broken, moments)
    assert lower <= broken / moments <= upper
    assert lower == 0 or binom.sf(broken - 1, moments, lower) == pytest.approx(0.025, rel=1e-6)
    assert upper == 1 or binom.cdf(broken, moments, upper) == pytest.approx(0.025, rel=1e-6)
