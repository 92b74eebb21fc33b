"""Levels of a factor that are a parameter's, which a profile and the command line change."""

from __future__ import annotations

import pytest

from storlab.errors import StudyError
from storlab.study.study import Study, parse_study

STUDY = """
title = "x"
primary = "elapsed"
stack = [{ layer = "directory" }]
[parameters]
sizes = ["4k"]
[profiles.full]
sizes = ["4k", "8k", "1M"]
[factors.size]
levels = "{sizes}"
[workload.w]
command = { argv = ["true", "{size}"] }
"""


def read(text: str = STUDY, *overrides: str) -> Study:
    return parse_study(text.encode(), "s.toml", lambda name: "", overrides)


def levels(study: Study) -> list[str]:
    return [cell.levels["size"] for cell in study.cells]


def test_a_profile_has_more_levels() -> None:
    assert levels(read()) == ["4k"]
    assert levels(read(STUDY, "profile=full")) == ["4k", "8k", "1M"]
    assert read().notes == ()


def test_the_command_line_gives_levels_of_its_own() -> None:
    assert levels(read(STUDY, 'sizes=["2M", "4M"]')) == ["2M", "4M"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("[]", "levels must be a list of one or more values"),
        ('["4k", "4k"]', 'the level "4k" is listed twice'),
        ('"4k"', "levels must be a list of one or more values, or a parameter that is one"),
        ('[["4k"]]', "parameters.sizes"),
    ],
)
def test_levels_that_cannot_be_are_named_where_they_are_written(sizes: str, said: str) -> None:
    with pytest.raises(StudyError) as raised:
        read(STUDY.replace('sizes = ["4k"]', f"sizes = {sizes}"))
    assert said in str(raised.value)


def test_a_word_that_is_no_parameter_is_no_list() -> None:
    with pytest.raises(StudyError, match="levels must be a list"):
        read(STUDY.replace('levels = "{sizes}"', 'levels = "{others}"'))


def test_the_way_of_cloning_may_be_a_factor_beside_others() -> None:
    cells = read(
        """
title = "Cloning"
schema = 1
stack = [{ layer = "directory" }, { layer = "mariadb", clone = "{clone}", doublewrite = "{doublewrite}" }]
factors.clone = ["copy", "reflink"]
factors.doublewrite = [true, false]
workload.load.sysbench = { tables = 1, rows = 10 }
"""
    ).cells
    assert len(cells) == 4
