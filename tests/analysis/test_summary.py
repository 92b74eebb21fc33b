"""Tests of ``storlab.analysis.summary``: JSON out and in again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.errors import ParseError

from .simulate import Factors, Values, design, tables

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


def test_a_summary_comes_back_from_json_exactly() -> None:
    summary = small()
    again = from_json(to_json(summary))
    assert again == summary
    assert to_json(again) == to_json(summary)


def test_the_json_is_that_of_the_golden_file() -> None:
    """To renew it after a wanted change: ``GOLDEN.write_bytes(to_json(small()))``."""
    ours, golden = from_json(to_json(small())), from_json(GOLDEN.read_bytes())
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "summary.json: not a summary"),
        ("[]", "not a summary"),
        ("{}", "not a summary"),
        ('{"cells": [], "estimates": [{}], "comparisons": [], "warnings": []}', "not a summary"),
        ('{"cells": [3], "estimates": [], "comparisons": [], "warnings": []}', "not a summary"),
    ],
)
def test_anything_else_is_refused_with_the_files_name(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        from_json(text)
