"""What ``zpool iostat -Hplq`` prints: of each version's columns, and what is none of its lines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.zpool_iostat import MAINTENANCE, QUEUES, PoolLook, parse_pool_look

WAITS = [f"{way}.{stage}" for stage in ("total", "disk", "sync-queue", "async-queue") for way in ("read", "write")]
numbers = st.integers(0, 2**63 - 1)
ROW = "tank 1 2 3 4 5 6 - 2000 - 500 - - - 1500 - - - 0 0 0 0 0 0 7 3 0 0 0 0 0 0".replace(" ", "\t")


def test_a_line_of_zfs_2_3_has_waits_where_something_waited_and_all_queues() -> None:
    look = parse_pool_look(ROW, "x")
    assert (look.pool, look.operations) == ("tank", {"read": 3, "write": 4})
    assert look.waits == pytest.approx({"write.total": 2e-6, "write.disk": 5e-7, "write.async-queue": 1.5e-6})
    assert (look.waiting["async-write"], look.active["async-write"]) == (7, 3)
    assert [*look.waiting] == [*look.active] == [*QUEUES]


@given(st.integers(1, 3), st.data(), st.from_regex(r"[A-Za-z][\w .:-]{0,30}", fullmatch=True))
def test_columns_of_each_version_are_read_and_any_other_number_of_them_is_refused(
    maintained: int, data: st.DataObject, pool: str
) -> None:
    usage, lengths = (data.draw(st.lists(numbers, min_size=n, max_size=n)) for n in (6, 2 * (4 + maintained)))
    times = data.draw(st.lists(st.none() | numbers, min_size=8 + maintained, max_size=8 + maintained))
    words = [*map(str, usage), *("-" if each is None else str(each) for each in times), *map(str, lengths)]
    queues = QUEUES[: 4 + maintained]
    named = dict(zip([*WAITS, *MAINTENANCE[:maintained]], times, strict=True))
    assert parse_pool_look("\t".join([pool, *words]), "x") == PoolLook(
        pool,
        {"read": usage[2], "write": usage[3]},
        {name: time / 1e9 for name, time in named.items() if time is not None},
        dict(zip(queues, lengths[::2], strict=True)),
        dict(zip(queues, lengths[1::2], strict=True)),
    )
    for some in (words[:-1], [*words, "0"], []):
        with pytest.raises(ParseError, match=rf"^x:7: has {len(some) + 1} columns"):
            parse_pool_look("\t".join([pool, *some]), "x", 7)


@pytest.mark.parametrize("number", ["", "1.5", "-1", "1K", "٣", "9" * 21])
def test_what_is_no_whole_number_is_refused(number: str) -> None:
    with pytest.raises(ParseError, match="has a value that is not a whole number"):
        parse_pool_look(re.sub(r"\t7\t", f"\t{number}\t", ROW), "x")
