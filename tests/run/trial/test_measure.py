"""When the loads of a trial ran."""

from __future__ import annotations

import pytest

from storlab.run.trial.measure import LoadSpan


@pytest.mark.parametrize(
    ("span", "at", "into"),
    [
        (LoadSpan(), 5.0, None),
        (LoadSpan(began=6.0), 5.0, None),
        (LoadSpan(began=2.0), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=6.0), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=5.25), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=4.0), 5.5, None),
    ],
)
def test_a_moment_is_some_seconds_into_the_load_only_while_one_runs(
    span: LoadSpan, at: float, into: float | None
) -> None:
    assert span.into(at) == into
