"""How many allocators a pool has, by what was asked for and by CPUs, and which numbers are refused beforehand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.layers.zfs.allocators import effective, parse_online
from storlab.layers.zfs.module import parameter_text
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.layers.zfs.properties import Value


@pytest.mark.parametrize(
    ("asked", "cpus_each", "cpus", "found"),
    [(4, 4, 1, 1), (4, 4, 4, 1), (4, 4, 8, 2), (4, 4, 64, 4), (16, 1, 2, 2), (8, 1, 4, 4), (1, 1, 64, 1), (4, 0, 8, 4)],
)
def test_a_pool_has_as_many_allocators_as_there_are_cpus_for(asked: int, cpus_each: int, cpus: int, found: int) -> None:
    assert effective(asked, cpus_each, cpus) == found


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpus_that_are_online_are_counted_as_the_kernel_lists_them(online: set[int]) -> None:
    parts, left = list[str](), sorted(online)
    while left:
        first = last = left.pop(0)
        while left and left[0] == last + 1:
            last = left.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    assert parse_online(",".join(parts) + "\n") == len(online)


@pytest.mark.parametrize("text", ["", "\n", "x", "0-", "-3", "0,,2", "0x3"])
def test_what_is_no_list_of_cpus_has_none(text: str) -> None:
    assert parse_online(text) is None


@pytest.mark.parametrize(
    ("name", "value", "least", "most"),
    [
        ("spa_num_allocators", 0, 1, 2**31 - 1),
        ("spa_num_allocators", -1, 1, 2**31 - 1),
        ("spa_num_allocators", "four", 1, 2**31 - 1),
        ("spa_cpus_per_allocator", 2**31, 1, 2**31 - 1),
        ("zio_dva_throttle_enabled", 2, 0, 1),
        ("zfs_vdev_def_queue_depth", 0, 1, 2**32 - 1),
    ],
)
def test_numbers_that_mean_nothing_to_zfs_are_refused(name: str, value: int | str, least: int, most: int) -> None:
    with pytest.raises(ValidationError, match=rf"{name} = {value} is out of range: .* from {least} to {most}"):
        ZpoolLayer(size="1G", module={name: value})


def test_numbers_that_zfs_takes_are_left_to_it() -> None:
    module: dict[str, Value] = {
        "spa_num_allocators": "8",
        "zio_dva_throttle_enabled": False,
        "zfs_active_allocator": "cursor",
    }
    assert ZpoolLayer(size="1G", module=module).module == module
    assert [parameter_text(value) for value in module.values()] == ["8", "0", "cursor"], "which takes no off for 0"
