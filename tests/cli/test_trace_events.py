"""Events on their way into a file: in order, in bounded memory, and not lost where the file can't be written."""

from __future__ import annotations

import os
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.devices import tmpfs
from storlab.blockio.trace_output import EVENT_COLUMNS, Event
from storlab.cli.trace.files import EventFile
from storlab.errors import UserError

SMALL = 100  # events in a part


def events(count: int, start: int = 0) -> list[Event]:
    """As the kernel gives them: nearly in order of time, and none like any other."""
    chance = random.Random(start)
    return [
        ("loop0", "write", "sync", 4096, start + n, 7, "dd", (start + n) * 1000 + chance.randrange(50_000))
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 99, 5000])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_every_event_is_in_the_file_once_in_order_of_time(count: int, ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"events.{ending}"
    file = EventFile(out, SMALL)
    for start in range(0, count, 37):
        assert file.add(events(min(37, count - start), start)) is None
    file.finish()
    read = pl.read_parquet(out) if ending == "parquet" else pl.read_csv(out, schema=EVENT_COLUMNS)
    assert dict(read.schema) == EVENT_COLUMNS
    assert file.saved == read.height == count
    assert read["t"].is_sorted()
    assert sorted(read["offset"]) == [512 * n for n in range(count)]
    assert list(tmp_path.iterdir()) == [out]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3000), max_size=6))
def test_how_events_are_handed_over_changes_nothing(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    out = tmp_path_factory.mktemp("events") / "events.parquet"
    file, start = EventFile(out, SMALL), 0
    for size in sizes:
        file.add(events(size, start))
        start += size
    file.finish()
    assert sorted(pl.read_parquet(out)["offset"]) == [512 * n for n in range(sum(sizes))]


def test_a_killed_trace_leaves_parts_that_can_be_read(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.parquet", SMALL)
    file.add(events(5000))
    assert not (tmp_path / "events.parquet").exists()
    left = file.left()
    assert left is not None and left.startswith("the first 3,976 events are in ")
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("events.parquet.") and folder.suffix == ".parts"
    assert pl.read_parquet(folder / "*.parquet").height == file.saved == 3976


@pytest.mark.needs("root")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_full_disk_is_told_at_once_and_what_was_saved_is_named(ending: str, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        (folder / "ballast").write_bytes(bytes(700_000))
        out = folder / f"events.{ending}"
        file = EventFile(out, 5000)
        said = [file.add(events(1000, start)) for start in range(0, 100_000, 1000)]
        told = [sentence for sentence in said if sentence]
        assert told == ["events from here on are not kept: No space left on device"]
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device; the first") as refused:
            file.finish()
        assert "\n" not in str(refused.value)
        assert pl.read_parquet(next(folder.glob("*.parts")) / "*.parquet").height == file.saved > 0
        assert not out.exists()


@pytest.mark.needs("root")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_disk_that_has_room_for_the_parts_alone_keeps_them(ending: str, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        file = EventFile(folder / f"events.{ending}", 5000)
        for start in range(0, 40_000, 1000):
            assert file.add(events(1000, start)) is None
        (folder / "ballast").write_bytes(bytes(free(folder) - 100_000))  # for the last part
        with pytest.raises(UserError, match="No space left on device; the first 40,000 events are in"):
            file.finish()
        assert {path.suffix for path in folder.iterdir()} == {".parts", ""}


@pytest.mark.needs("root")
def test_a_disk_that_was_full_before_has_nothing_more_on_it_after(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        (folder / "ballast").write_bytes(bytes(free(folder)))
        file = EventFile(folder / "events.parquet", SMALL)
        file.add(events(5000))
        with pytest.raises(UserError, match="No space left on device; no event is kept"):
            file.finish()
        assert [path.name for path in folder.iterdir()] == ["ballast"]


def free(folder: Path) -> int:
    """Bytes that are left."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
