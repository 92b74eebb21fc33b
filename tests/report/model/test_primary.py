"""Which metrics a study's ``primary`` names, of several sources and of several ends of a chain."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from storlab.report.model.input import split


class One(NamedTuple):
    source: str
    metric: str


HAVE = [
    One("probe:alignment@store", "write.requests"),
    One("probe:alignment", "write.requests"),
    One("backing@store", "backing.drain"),
    One("load", "read.bandwidth"),
    One("load", "write.bandwidth"),
]


@pytest.mark.parametrize(
    ("primary", "named"),
    [
        ("bandwidth", HAVE[3:]),
        ("load:write.bandwidth", HAVE[4:]),
        ("write.requests", HAVE[1:2]),
        ("probe:alignment:write.requests", HAVE[1:2]),
        ("probe:alignment@store:write.requests", HAVE[:1]),
        ("drain", HAVE[2:3]),
        ("backing:backing.drain", HAVE[2:3]),
    ],
)
def test_the_loads_end_comes_first_and_another_where_only_that_has_the_metric(primary: str, named: list[One]) -> None:
    others = [one for one in HAVE if one not in named]
    assert split(primary, HAVE) == (named, others)


def test_where_it_names_nothing_all_are_as_good() -> None:
    assert split("tps", HAVE) == (HAVE, [])
