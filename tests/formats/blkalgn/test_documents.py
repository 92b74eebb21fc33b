"""Several documents in one file of blkalgn: those of one trace are read, the last of them, and others refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.blkalgn.documents import read_counted
from storlab.formats.blkalgn.file import read_blkalgn


def document(counts: Mapping[int, int]) -> dict[str, Any]:
    keyed = {str(length): count for length, count in counts.items()}
    return {"disks": {"vda": {"granularity": keyed, "alignment": keyed}} if keyed else {}}


def file(*counts: Mapping[int, int]) -> bytes:
    return b"\n".join(json.dumps(document(each), indent=2).encode() + b"\n" for each in counts)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.sampled_from((None, 2)))
def test_of_counts_that_go_on_growing_the_last_are_read(more: list[int], indent: int | None) -> None:
    sums = list(accumulate([1, *more], add))
    text = "\n".join(json.dumps(document({4096: count}), indent=indent) for count in sums).encode()
    read = read_blkalgn(text)
    assert (read.documents, read.warnings) == (len(sums), ())
    assert read.disks["vda"].granularity == {4096: sums[-1]}


def test_a_trace_may_begin_before_there_is_any_request() -> None:
    assert read_blkalgn(file({}, {}, {4096: 3})).disks["vda"].total == 3


@pytest.mark.parametrize(
    "counts", [({4096: 3}, {8192: 9}), ({4096: 3}, {4096: 2}), ({4096: 900}, {4096: 3}), ({4096: 3}, {})]
)
def test_documents_of_several_traces_are_refused(counts: tuple[dict[int, int], ...]) -> None:
    with pytest.raises(ParseError, match=r"f: (its document 2 does not continue|holds not one)"):
        read_blkalgn(file(*counts), "f")


def test_what_is_requeued_just_then_does_not_make_another_trace_of_it() -> None:
    assert read_blkalgn(file({4096: 1000, 8192: 2}, {4096: 1000, 8192: 1})).disks["vda"].total == 1001


@given(st.integers(1, 90))
def test_a_last_document_that_was_cut_off_is_left_out_and_that_is_said(left: int) -> None:
    whole, last = file({4096: 3}), file({4096: 9})
    read = read_blkalgn(whole + last[:left])
    assert read.disks["vda"].total == 3
    assert read.warnings == ("its last document is cut off, and left out",)
    with pytest.raises(ParseError, match="f:1: is no JSON"):
        read_blkalgn(last[:left].replace(b"\n", b""), "f")


@pytest.mark.parametrize("other", [b"x", b"]", b"20+0 records in", "ä".encode()])
def test_what_else_stands_beside_a_document_makes_it_no_such_file(other: bytes) -> None:
    for text in (file({4096: 3}) + other, other + file({4096: 3})):
        with pytest.raises(ParseError, match=r"f:\d+: is no JSON"):
            read_blkalgn(text, "f")


@given(st.lists(st.sampled_from((file({4096: 3}), b'{"disks":{', b"[", b"{}", b"[" * 10**5, b"\xff", b"9" * 5000))))
def test_pieces_of_documents_are_read_or_refused(pieces: list[bytes]) -> None:
    try:
        read_counted(b"".join(pieces), "pieces")
    except (ParseError, ValueError) as error:
        assert str(error)
