"""Long names of levels in charts: short enough, and told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from storlab.report.charts.names import LIMIT, legend_of, shortened, with_short_names

from ..hostile import invisible

NAMES = st.lists(st.text("ab-_.", max_size=40) | st.text(max_size=30) | invisible, max_size=5)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["xfs", "ext4"], {}),
        (
            ["mysql-12h-doublewrite-off", "mysql-12h-doublewrite-on"],
            {
                "mysql-12h-doublewrite-off": "…doublewrite-off",
                "mysql-12h-doublewrite-on": "…doublewrite-on",
            },
        ),
        (
            ["/var/tmp/results/off-1.txt", "/var/tmp/results/on-2.txt"],
            {"/var/tmp/results/off-1.txt": "…results/off-1.txt", "/var/tmp/results/on-2.txt": "…results/on-2.txt"},
        ),
        (
            ["xfs-without-reflinks-today", "ext4-without-reflinks-today"],
            {"xfs-without-reflinks-today": "xfs-without-…", "ext4-without-reflinks-today": "ext4-without-…"},
        ),
        (["baseline-kernel-6.12.117-x", "patched"], {"baseline-kernel-6.12.117-x": "baseline-…12.117-x"}),
        (["a-name-of-22-characters", "a-name-of-22-characters-and-more"], None),
    ],
)
def test_what_long_names_share_is_left_out(names: list[str], short: dict[str, str] | None) -> None:
    found = shortened(names)
    assert found == short if short is not None else len(set(found.values())) == 2, found


@given(NAMES)
def test_names_stay_apart_and_fit_or_all_stay_as_they_are(names: list[str]) -> None:
    short = shortened(names)
    shown = [short.get(name, name) for name in names]
    assert len(set(shown)) == len(set(names))
    assert all(cell_len(name) <= LIMIT for name in short.values())
    assert all(cell_len(name) > LIMIT for name in short)


def test_a_level_has_one_name_in_all_of_a_chart() -> None:
    long = "mysql-12h-doublewrite-"
    spec = {
        "encoding": {"y": {"field": "level", "sort": [f"{long}on", f"{long}off"]}},
        "datasets": {"x": [{"level": f"{long}on", "v": 1.0}, {"level": f"{long}off", "v": 2.0}]},
    }
    assert with_short_names(spec) == {
        "encoding": {"y": {"field": "level", "sort": ["…doublewrite-on", "…doublewrite-off"]}},
        "datasets": {"x": [{"level": "…doublewrite-on", "v": 1.0}, {"level": "…doublewrite-off", "v": 2.0}]},
    }


@given(NAMES, st.integers(1, 2000))
def test_a_legend_of_any_names_has_a_column_and_room_between_two(names: list[str], width: int) -> None:
    given = legend_of({"color": {"legend": {"title": "".join(names)}, "scale": {"domain": names}}}, width)[0]
    assert given["columns"] >= 1
    assert given["columnPadding"] >= 10


def test_a_legend_has_the_columns_that_there_is_room_for() -> None:
    def columns(letters: int, width: float) -> int:
        return legend_of({"color": {"scale": {"domain": ["x" * letters]}}}, width)[0]["columns"]

    assert [columns(3, 360), columns(16, 360), columns(16, 1040), columns(90, 360)] == [5, 2, 6, 1]
