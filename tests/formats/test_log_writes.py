"""Logs of writes: what blklogwrites and dm-log-writes write is read, and what is damaged is refused in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.logs import Request, log_bytes
from formats.fio.samples import ANY_FOLDER
from storlab.base.errors import ParseError
from storlab.tools.log_writes import ENTRY, HEAD, Flag, read_log

SECTOR = 512
requests = st.lists(
    st.one_of(
        st.builds(Request, st.integers(0, 2**40), st.binary(min_size=1, max_size=3).map(lambda data: data * SECTOR)),
        st.just(Request(flags=Flag.FLUSH)),
        st.builds(Request, st.integers(0, 100), st.just(b""), st.just(Flag.DISCARD), st.integers(1, 2**30)),
        st.builds(Request, st.integers(0, 9), st.just(b"\1" * SECTOR), st.sampled_from([Flag.FUA, Flag.FLUSH])),
        st.builds(lambda text: Request(flags=Flag.MARK, mark=text), st.binary(max_size=100)),
    ),
    max_size=30,
)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "log"
    path.write_bytes(data)
    return path


@ANY_FOLDER
@given(requests)
def test_each_request_is_read_as_it_was_logged(tmp_path: Path, logged: list[Request]) -> None:
    data = log_bytes(logged)
    log = read_log(written(tmp_path, data))
    assert log.sector_size == SECTOR
    assert [(entry.offset, entry.length, entry.flags) for entry in log.entries] == [
        (each.sector * SECTOR, each.length, each.flags) for each in logged
    ]
    for entry, each in zip(log.entries, logged, strict=True):
        assert each.flags & Flag.DISCARD or data[entry.data : entry.data + entry.length] == each.data
    assert [log.before(entry.end) for entry in log.entries] == [*range(1, len(logged) + 1)]
    assert [log.before(entry.end - 1) for entry in log.entries] == [*range(len(logged))]


def test_of_a_log_that_is_empty_huge_or_not_finished_whole_entries_are_read(tmp_path: Path) -> None:
    assert (read_log(written(tmp_path, b"")).entries, read_log(written(tmp_path, log_bytes([]))).entries) == ((), ())
    logged = [Request(number, b"x" * SECTOR) for number in range(5)]
    assert len(read_log(written(tmp_path, log_bytes(logged, count=2))).entries) == 5
    data = log_bytes([Request(0, b"x" * SECTOR), Request(1, b"y" * SECTOR)], count=1)
    assert len(read_log(written(tmp_path, data[:-1])).entries) == 1
    assert len(read_log(written(tmp_path, data + bytes(4 * SECTOR))).entries) == 2
    path = written(tmp_path, log_bytes([Request(0, b"x" * SECTOR)]))
    with path.open("r+b") as file:
        file.truncate(2**42)
    assert len(read_log(path).entries) == 1
    with pytest.raises(ParseError, match="not a regular file"):
        read_log(tmp_path)


def entry(*fields: int) -> bytes:
    return ENTRY.pack(*fields).ljust(SECTOR, b"\0")


GOOD = log_bytes([])
BAD = {
    b"short": "too short for a write log: 5 bytes",
    b"\0" * SECTOR: "not a write log: it does not begin with the magic number",
    HEAD.pack(0x6A736677736872, 2, 0, 512): "a write log of version 2; only version 1 is known",
    HEAD.pack(0x6A736677736872, 1, 0, 500): "500 bytes is not a valid size of a sector",
    HEAD.pack(0x6A736677736872, 1, 0, 0): "0 bytes is not a valid size of a sector",
    HEAD.pack(0x6A736677736872, 1, 2**64 - 1, 512): f"{2**64 - 1} entries were logged, and only 0 are whole",
    GOOD + entry(0, 0, 64, 0): "entry 1, at byte 512: unknown flags 0x40",
    GOOD + entry(2**60, 1, 0, 0): "are on no disk",
    GOOD + entry(0, 1, 8, 0): "a mark that does not fit",
    GOOD + entry(0, 0, 8, 2**63): "a mark that does not fit",
    log_bytes([Request(0, b"x" * SECTOR)])[:-1]: "1 entries were logged, and only 0 are whole",
}


@pytest.mark.parametrize(("data", "message"), BAD.items(), ids=[text[:40] for text in BAD.values()])
def test_a_damaged_log_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        read_log(written(tmp_path, data))
