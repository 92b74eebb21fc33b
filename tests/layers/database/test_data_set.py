"""What a database starts from: how it is asked for, and when two of them are the same."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from images.test_command_line import storlab
from storlab.images.cache import About, Cache
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.data_set import DataSet, Recipe, forget_old
from storlab.layers.database.innodb import difference
from storlab.layers.database.mariadb import MariadbLayer
from storlab.layers.database.postgresql import PostgresqlLayer
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.nodes.node import Node

SYSBENCH = DataSet(tables=4, rows=50_000)


def node(*, kind: str = "local", machine: str = "a", volatile: bool = False) -> Node:
    identity = NodeIdentity("host", kind, "", Machine(machine, "boot"), volatile)
    return Node("host", connection=None, identity=identity)  # type: ignore[arg-type]


def recipe(server: str = "mariadb 10.11", data: DataSet | None = SYSBENCH, **made_with: str) -> Recipe:
    return Recipe(server, made_with, data)


@pytest.mark.parametrize(
    "keys",
    [{}, {"tables": 4}, {"rows": 4}, {"tables": 4, "scale": 1}, {"tables": 4, "rows": 4, "scale": 1}, {"seed": 3}],
)
def test_a_data_set_is_of_one_tool(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"write \{ tables = 4, rows = 50000 \}"):
        DataSet.model_validate(keys)


def test_each_tool_loads_its_own() -> None:
    assert (SYSBENCH.tool, DataSet(scale=1).tool) == ("sysbench", "pgbench")
    assert SYSBENCH.bytes() >= 4 * 50_000 * 200 and DataSet(scale=1).bytes() >= 15_000_000


def test_data_sets_differ_by_all_that_their_bytes_depend_on() -> None:
    every = [
        recipe(),
        recipe("mariadb 10.12"),
        recipe(data=None),
        recipe(data=DataSet(tables=4, rows=50_000, seed=2)),
        recipe(data=DataSet(tables=5, rows=50_000)),
        recipe(innodb_page_size="4096"),
    ]
    assert len({each.name(node()) for each in every}) == len(every)
    assert recipe().name(node()) == recipe().name(node())


def test_what_a_virtual_machine_made_is_for_virtual_machines_alone() -> None:
    guest, other = node(kind="vm", volatile=True), node(kind="vm", machine="b", volatile=True)
    assert recipe().name(guest) == recipe().name(other) != recipe().name(node())
    assert recipe().name(node(machine="b")) != recipe().name(node())


def test_what_protects_pages_shares_a_data_set_and_their_size_does_not() -> None:
    assert MariadbLayer(doublewrite=False).made_with() == MariadbLayer().made_with()
    assert MariadbLayer(page_size=4096).made_with() != MariadbLayer().made_with()
    assert PostgresqlLayer(full_page_writes=False).made_with() == PostgresqlLayer().made_with()


@pytest.mark.parametrize(
    ("layer", "keys", "said"),
    [
        (MariadbLayer, {"page_size": "12k"}, "4k, 8k, 16k, 32k and 64k"),
        (MariadbLayer, {"full_page_writes": True}, "full_page_writes"),
        (MariadbLayer, {"settings": {"datadir": "x"}}, "Storlab says where"),
        (MariadbLayer, {"settings": {"innodb_data_home_dir": "x"}}, "Storlab says where"),
        (MariadbLayer, {"settings": {"plugin_load_add": "x.so"}}, "Storlab says where"),
        (MariadbLayer, {"settings": {"init_connect": "x; y"}}, "should match"),
        (MariadbLayer, {"settings": {"a": "../b"}}, "should match"),
        (MariadbLayer, {"settings": {"a\nb": "1"}}, "should match"),
        (PostgresqlLayer, {"doublewrite": False}, "PostgreSQL has full_page_writes"),
        (PostgresqlLayer, {"page_size": "16k"}, "PostgreSQL has bindir"),
        (PostgresqlLayer, {"checkpoint_timeout": "10s"}, "30"),
        (PostgresqlLayer, {"settings": {"archive_command": "x"}}, "Storlab says where"),
        (PostgresqlLayer, {"settings": {"shared_preload_libraries": "x"}}, "Storlab says where"),
    ],
)
def test_what_a_server_can_not_be_told_is_refused(layer: type[DatabaseLayer], keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        layer.model_validate(keys)


def test_settings_are_taken_as_toml_has_them() -> None:
    layer = MariadbLayer(settings={"innodb_io_capacity": 2000, "innodb_flush_sync": False, "x": 0.5})
    assert layer.settings == {"innodb_io_capacity": "2000", "innodb_flush_sync": "off", "x": "0.5"}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("64M", "67108864"), ("ON", "1"), ("off", "OFF"), ("0.5", "0.500000"), ("O_DIRECT", "o_direct"), ("1", "ON")],
)
def test_a_setting_is_the_same_in_any_spelling(wanted: str, said: str) -> None:
    assert difference(wanted, said) is None


@pytest.mark.parametrize(("wanted", "said"), [("64M", "64"), ("ON", "OFF"), ("O_DIRECT", "fsync"), ("1", None)])
def test_a_setting_that_did_not_take_is_told(wanted: str, said: str | None) -> None:
    assert difference(wanted, said) == (said or "no such setting")


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_said_is_compared(wanted: str, said: str) -> None:
    assert difference(said, said) is None
    assert difference(wanted, said) in (None, said)


def kept(cache: Cache, name: str, wanted: float, size: int = 1 << 20) -> None:
    """A part of this size that was wanted last at this time."""
    with cache.making(name, size) as work:
        (work / "data.tar").write_bytes(b"x" * size)
        cache.finish(work, About(versions=recipe().about(node())))
    os.utime(cache.folder / "parts" / name, (wanted, wanted))


def test_what_was_wanted_longest_ago_goes_first_and_never_what_was_just_made(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for wanted, name in enumerate(("first", "second", "third", "new")):
        kept(cache, name, float(wanted))
    forget_old(cache, keep="new", most=10 << 20)
    assert [part.name for part in cache.parts()] == ["new", "third", "second", "first"]
    forget_old(cache, keep="first", most=(5 << 20) // 2)
    assert [part.name for part in cache.parts()] == ["new", "first"]
    forget_old(cache, keep="first", most=1)
    assert [part.name for part in cache.parts()] == ["first"]


def test_they_are_listed_with_what_made_them_and_can_be_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "storlab" / "data-sets")
    kept(cache, "0123abcd", time.time())
    kept(cache, "4567abcd", time.time())
    listed = storlab("list", cache=tmp_path).stdout
    made_of = "(server mariadb 10.11, tables 4, rows 50000, seed 1, for local)"
    assert f"0123abcd  data set  1.00 MiB  1 min old  {made_of}" in listed, listed
    (first, _) = sorted(json.loads(storlab("list", "--json", cache=tmp_path).stdout), key=lambda each: each["name"])
    assert (first["kind"], first["made_of"]["rows"]) == ("data set", "50000")
    removed = storlab("remove", "0123abcd", cache=tmp_path)
    assert (removed.returncode, removed.stdout) == (0, "removed: 0123abcd\n")
    assert [part.name for part in cache.parts()] == ["4567abcd"]
    assert storlab("remove", "../parts/4567abcd", cache=tmp_path).returncode == 2
    assert [part.name for part in cache.parts()] == ["4567abcd"]
