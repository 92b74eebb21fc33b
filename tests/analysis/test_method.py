"""The method says what was done, and nothing that was not."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from storlab.analysis.summarise import summarise

from .test_summarise import study


def test_of_comparisons_it_says_how_they_are_made_and_corrected() -> None:
    method = summarise(*study()).method
    assert method.startswith("Levels are compared by round")
    assert "each of its 3 comparisons" in method


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (12, "Nothing was compared. Means are over rounds; their intervals are anytime-valid t intervals"),
        (1, "Nothing was compared. Each number is of one round, which has no interval."),
    ],
)
def test_where_nothing_is_compared_it_speaks_of_no_verdict(rounds: int, said: str) -> None:
    trials, metrics, asked = study()
    done = trials.filter(pl.col("round") <= rounds), metrics.filter(pl.col("round") <= rounds)
    method = summarise(*done, replace(asked, compared=False)).method
    assert method.startswith(said)
    assert "verdict" not in method and "compared by round" not in method
    assert method.endswith("Samples within a trial are not repeats and never count as such.")


def test_comparisons_without_an_answer_are_not_described_as_made() -> None:
    trials, metrics, asked = study()
    one_side = metrics.filter(pl.col("cell").is_in([1, 2]))
    assert summarise(trials, one_side, asked).method.startswith("Nothing was compared.")


def test_where_nothing_was_measured_it_says_nothing() -> None:
    trials, metrics, asked = study()
    assert summarise(trials, metrics.clear(), asked).method == ""
