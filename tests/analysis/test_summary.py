"""A summary's JSON, out and in again; its method; and that of a large study."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest

from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.errors import ParseError

from .simulate import Factors, Values, design, tables
from .test_summarise import study

GOLDEN = Path(__file__).parent / "golden" / "summary.json"


def small() -> Summary:
    """A study with every kind of result: a verdict, a failure, an outlier, no interval."""
    factors: Factors = {"fs": ("xfs", "ext4"), "bs": ("4k", "64k")}
    fast = [160.0, 152.0, 148.0, 155.0, 151.0, 163.0, 149.0, 158.0, 157.0, 150.0]
    slow = [100.0, 98.0, 103.0, 99.0, 101.0, 97.0, 102.0, 100.0, 99.5, 100.5]
    values: Values = {
        ("xfs", "4k"): list(fast),
        ("xfs", "64k"): [*fast[:8], None, 900.0],
        ("ext4", "4k"): list(slow),
        ("ext4", "64k"): [*slow[:9], 0.0],
    }
    trials, metrics, cells = tables(values, factors)
    asked = replace(design(factors, cells), stopped="All 10 planned rounds are done.", facts={"seed": 7, "x": [1.5]})
    return summarise(trials, metrics, asked)


def test_a_summary_comes_back_from_json_exactly_and_is_that_of_the_golden_file() -> None:
    """To renew it after a wanted change: ``GOLDEN.write_bytes(to_json(small()))``."""
    summary = small()
    ours, golden = from_json(to_json(summary)), from_json(GOLDEN.read_bytes())
    assert ours == summary and to_json(ours) == to_json(summary)
    assert [c.reason for c in ours.comparisons] == [c.reason for c in golden.comparisons]
    assert [e.warnings for e in ours.estimates] == [e.warnings for e in golden.estimates]
    assert [c.ratio for c in ours.comparisons] == pytest.approx([c.ratio for c in golden.comparisons])
    assert orjson.loads(to_json(ours)).keys() == orjson.loads(GOLDEN.read_bytes()).keys()


def test_a_number_that_json_can_not_hold_is_refused_by_name() -> None:
    summary = small()
    bad = replace(summary.estimates[0], mean=math.nan)
    with pytest.raises(ValueError, match=r"estimates\[0\]\.mean is nan"):
        to_json(replace(summary, estimates=(bad,)))
    with pytest.raises(ValueError, match=r"facts\.a\[1\] is inf"):
        to_json(replace(summary, facts={"a": [1, math.inf]}))


LISTS = '"comparisons": [], "warnings": []'


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", f'{{"cells": [], "estimates": [{{}}], {LISTS}}}', f'{{"cells": [3], "estimates": [], {LISTS}}}'],
)
def test_anything_else_is_refused_with_the_files_name(text: str) -> None:
    with pytest.raises(ParseError, match=r"summary\.json: not a summary"):
        from_json(text)


def test_the_method_says_what_was_done_and_nothing_that_was_not() -> None:
    trials, metrics, asked = study()
    method = summarise(trials, metrics, asked).method
    assert method.startswith("Levels are compared by round") and "each of its 3 comparisons" in method
    one_side = metrics.filter(pl.col("cell").is_in([1, 2]))
    assert summarise(trials, one_side, asked).method.startswith("Nothing was compared.")
    assert summarise(trials, metrics.clear(), asked).method == ""


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


LEVELS, SIZES, ROUNDS, METRICS = 4, 25, 100, 100


def test_of_ten_thousand_trials_with_a_hundred_metrics_all_is_summarised() -> None:
    """How fast: ``benchmarks/analyse.py``."""
    factors = {"fs": tuple(f"fs{n}" for n in range(LEVELS)), "bs": tuple(f"{n}k" for n in range(SIZES))}
    cells = tuple(enumerate(({"fs": fs, "bs": bs} for fs in factors["fs"] for bs in factors["bs"]), start=1))
    count = len(cells) * ROUNDS
    trial = np.arange(count)
    known = {"status": "done", "reason": None, "node": None, "job": None}
    known |= {"source": "load", "unit": "B/s", "better": "higher"}
    trials = pl.DataFrame({"trial": trial + 1, "round": trial // len(cells) + 1, "cell": trial % len(cells) + 1})
    trials = trials.with_columns(pl.lit(value, pl.String).alias(name) for name, value in known.items())
    names = np.array(["write.bandwidth", *(f"m{n}" for n in range(1, METRICS))])
    metrics = trials[np.repeat(trial, METRICS)].with_columns(
        metric=pl.Series(np.tile(names, count)),
        value=pl.Series(np.exp(0.05 * np.random.default_rng(1).normal(size=count * METRICS))),
    )
    summary = summarise(trials, metrics, design(factors, cells))
    assert (len(summary.estimates), len(summary.comparisons)) == (10_000, 6 * SIZES + 6)
