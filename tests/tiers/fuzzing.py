"""Tests that make up their input: how many examples each has, and those that go through every input of a kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings


def is_fuzz(item: pytest.Item) -> bool:
    """Whether a test makes up its input."""
    return is_hypothesis_test(getattr(item, "obj", None))


def enlarge(test: Any, times: int) -> None:
    """Give a test that makes up its input so many times as many examples, whatever it says itself."""
    own = test._hypothesis_internal_use_settings  # as hypothesis' own plugin for pytest reads them
    test._hypothesis_internal_use_settings = settings(own, max_examples=own.max_examples * times)
