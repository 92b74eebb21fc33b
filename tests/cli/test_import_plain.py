"""Plain calls of ``storlab import`` are read without Typer, and as Typer reads them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.cli.import_.options import ImportOptions
from storlab.cli.import_.plain import KINDS, plain_options
from study.program import Ran, call

WORDS = ["a.txt", "b c", "--label", "--label=x", "--factor", "f=1,2", "--out", "run", "--interleaved", "--help", "-x"]
CALLS = st.tuples(
    st.sampled_from([*KINDS, "csv", "nothing"]), st.lists(st.sampled_from([*WORDS, "", "--", "-"]), max_size=7)
)


def by_typer(*words: str) -> tuple[Ran, ImportOptions | None]:
    seen: list[Any] = []
    with mock.patch("storlab.cli.import_.command._import", seen.append):
        ran = call("import", *words)
    return ran, seen[0] if seen else None


@given(CALLS)
def test_what_is_read_plainly_is_what_typer_reads(asked: tuple[str, list[str]]) -> None:
    kind, words = asked
    plain = plain_options([kind, *words])
    if plain is not None:
        assert by_typer(kind, *words) == (Ran(0, "", ""), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_usual_calls_are_plain(kind: str) -> None:
    words = ["a", "--label", "x", "b", "--label", "y", "--factor", "sack=on,off", "--interleaved", "--out", "run"]
    assert plain_options([kind, *words]) == by_typer(kind, *words)[1] is not None


@pytest.mark.parametrize("words", [[], ["--help"], ["a", "--labels", "x"], ["a", "--out"], ["a", "--out=run"], [""]])
def test_questions_mistakes_and_other_ways_to_write_it_are_left_to_typer(words: list[str]) -> None:
    assert plain_options(["pcap", *words]) is None
