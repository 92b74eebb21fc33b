"""Results on a disk that has no room left: what is written is whole lines, whatever comes afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storlab.records.suite import Results
from storlab.records.suite.folder import read_results
from storlab.suite.model import Outcome
from suite.samples import attempt


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: as on a full disk, a write takes what fits, and the next one is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_result_that_finds_no_room_leaves_nothing_that_a_later_one_follows(tmp_path: Path, room: int) -> None:
    first, refused, later = attempt("pool/a"), attempt("pool/b", Outcome.FAIL), attempt("pool/c")
    path = tmp_path / "results.jsonl"
    with Results(tmp_path) as results:
        results.add(first)
        before = path.read_bytes()
        with room_for(len(before) + room), pytest.raises(OSError, match="File too large"):
            results.add(refused)
        assert path.read_bytes() == before
        results.add(later)
    assert read_results(tmp_path) == [first, later]
