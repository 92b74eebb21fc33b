"""Tests of ``storlab.analysis.wording``."""

from __future__ import annotations

import pytest

from storlab.analysis.wording import level_names, listed, percent, plural, times


@pytest.mark.parametrize(
    ("low", "ratio", "high", "text"),
    [
        (1.31, 1.42, 1.54, "1.42× (1.31× to 1.54×)"),
        (0.998, 1.004, 1.011, "1.004× (0.998× to 1.011×)"),
        (1.001, 1.12, 1.25, "1.120× (1.001× to 1.250×)"),
        (1.0003, 1.0004, 1.0005, "1.0004× (1.0003× to 1.0005×)"),
        (0.94, 1.0, 1.0, "1.000× (0.940× to 1.000×)"),
        (0.0012, 0.0015, 0.0019, "0.0015× (0.0012× to 0.0019×)"),
        (95.0, 1234.4, 16000.0, "1234× (95.00× to 16000×)"),
        (1e-300, 1.0, 1e300, "1.000× (1e-300× to 1e+300×)"),
    ],
)
def test_ratios_have_as_many_decimals_as_they_need(low: float, ratio: float, high: float, text: str) -> None:
    assert times(low, ratio, high) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.05, "5 %"),
        (0.95, "95 %"),
        (0.995, "99.5 %"),
        (1 - 0.05 / 3, "98.3 %"),
        (1 - 0.05 / 1000, "99.995 %"),
        (0.025, "2.5 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (2.0, "200 %"),
    ],
)
def test_percentages_show_what_is_missing_to_a_hundred(share: float, text: str) -> None:
    assert percent(share) == text


def test_lists_of_rounds_read_as_a_sentence_does() -> None:
    assert listed([3]) == "round 3"
    assert listed([3, 5]) == "rounds 3 and 5"
    assert listed([1, 2, 7]) == "rounds 1, 2 and 7"
    assert listed(list(range(1, 12))) == "rounds 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"


def test_one_is_singular() -> None:
    assert (plural(1, "round"), plural(2, "round"), plural(0, "round")) == ("1 round", "2 rounds", "0 rounds")


def test_levels_are_named_with_their_factors() -> None:
    assert level_names({"bs": "4k", "media": "ssd"}) == "bs=4k, media=ssd"
