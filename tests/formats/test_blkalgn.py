"""blkalgn's JSON in four dialects, told apart by content; of several documents of one trace the last is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.base.errors import ParseError
from storlab.blockio.requests import DiskHistograms, joint_alignment
from storlab.tools.blkalgn import Dialect, blkalgn_json, read_blkalgn

Request = tuple[int, int]  # offset, length

requests = st.lists(
    st.tuples(st.integers(0, 1 << 12).map(lambda n: n * 512), st.integers(0, 300).map(lambda n: n * 512)),
    min_size=1,
    max_size=40,
)


def written(issued: Sequence[Request], dialect: Dialect) -> bytes:
    """What that version of the tool prints of these requests, by its definitions."""
    lengths = Counter(length for _, length in issued)
    aligned = Counter(joint_alignment(length, offset) or 512 for offset, length in issued)
    if dialect == 1:
        return json.dumps({"Block size": keyed(lengths, log2), "Algn size": keyed(aligned, log2)}).encode()
    length_key = {2: lambda n: n // 512, 3: lambda n: n, 4: lambda n: n + 512}[dialect]
    align_key = log2 if dialect == 2 else int
    disk = {"granularity": keyed(lengths, length_key), "alignment": keyed(aligned, align_key)}
    return json.dumps({"disks": {"vda": disk}}).encode()


def keyed(counts: Counter[int], key: Any) -> dict[str, int]:
    found: Counter[str] = Counter()
    for value, count in counts.items():
        found[str(key(value))] += count
    return dict(found)


def log2(value: int) -> int:
    return max(value.bit_length() - 1, 0)


def histograms(issued: Sequence[Request]) -> DiskHistograms:
    data = [(offset, length) for offset, length in issued if length]
    return DiskHistograms(
        dict(sorted(Counter(length for _, length in data).items())),
        dict(sorted(Counter(joint_alignment(length, offset) or 512 for offset, length in data).items())),
        len(issued) - len(data),
    )


@given(requests, st.sampled_from((2, 3, 4)))
def test_a_dialect_is_told_or_refused_and_never_mistaken(issued: list[Request], dialect: Dialect) -> None:
    text = written(issued, dialect)
    try:
        read = read_blkalgn(text)
    except ParseError as error:
        assert "--dialect" in str(error) and dialect != 2
        read = read_blkalgn(text, dialect=dialect)
    assert (read.dialect, read.disks) == (dialect, {"vda": histograms(issued)})


@given(st.lists(st.sampled_from((4096, 8192, 16384, 65536)), min_size=1), st.sampled_from((3, 4)))
def test_what_lies_on_4k_is_always_told(lengths: list[int], dialect: Dialect) -> None:
    issued = [(1 << 20, length) for length in lengths]
    assert read_blkalgn(written(issued, dialect)).dialect == dialect


@given(requests)
def test_the_python_version_is_known_by_its_keys(issued: list[Request]) -> None:
    assume(any(length for _, length in issued))
    read = read_blkalgn(written(issued, 1))
    (disk,) = read.disks.values()
    assert read.dialect == 1 and not disk.exact and disk.total == sum(1 for _, length in issued if length)
    assert any("4 KiB" in warning for warning in read.warnings)


@given(requests)
def test_what_is_written_reads_back(issued: list[Request]) -> None:
    mine = histograms(issued)
    assume(mine.total)
    read = read_blkalgn(blkalgn_json({"vda": mine}), dialect=3)
    assert (read.disks["vda"].granularity, read.disks["vda"].alignment) == (mine.granularity, mine.alignment)
    assert not read.warnings


def test_flushes_the_seeds_4608_longer_requests_and_a_stray_one_do_not_mislead() -> None:
    read = read_blkalgn(b'{"disks": {"vda": {"granularity": {"0": 2, "8": 27}, "alignment": {"9": 2, "12": 27}}}}')
    assert (read.dialect, read.disks["vda"]) == (2, DiskHistograms({4096: 27}, {4096: 27}, without_data=2))
    read = read_blkalgn(b'{"disks": {"vda": {"granularity": {"4608": 27}, "alignment": {"4096": 27}}}}')
    assert (read.dialect, read.disks["vda"].granularity) == (4, {4096: 27})
    text = b'{"disks": {"vda": {"granularity": {"8388096": 5, "512": 1}, "alignment": {"16777216": 5, "512": 1}}}}'
    read = read_blkalgn(text)
    assert read.dialect == 3 and any("8 MiB" in warning for warning in read.warnings)
    disk = {"granularity": {"4096": 1000}, "alignment": {"4096": 1000, "512": 1}}
    read = read_blkalgn(json.dumps({"disks": {"vda": disk}}).encode())
    assert read.dialect == 3 and any("1 of 1001" in warning for warning in read.warnings)


@pytest.mark.parametrize(
    ("text", "says"), [json.loads(line) for line in sample(__file__, "cases/blkalgn-faults.jsonl").splitlines()]
)
def test_what_is_no_such_file_is_named(text: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_blkalgn(text.encode(), "f")
    assert says in str(caught.value) and str(caught.value).startswith("f:")


def test_counts_whose_sums_no_table_holds_and_a_dialect_that_does_not_fit_are_refused() -> None:
    text = written([(0, 4096)], 2)
    for wrong in (1, 3, 4):
        with pytest.raises(ParseError):
            read_blkalgn(text, dialect=wrong)
    for lengths, says in (
        ({"4096": 1 << 62, "8192": 1 << 62}, f"granularity.4096: {1 << 62} is not a number of requests"),
        ({str(1 << 40): 1 << 40}, "its requests have more than an exbibyte"),
    ):
        disk = {"granularity": lengths, "alignment": {"512": 1}}
        with pytest.raises(ParseError, match=says):
            read_blkalgn(json.dumps({"disks": {"vda": disk}}).encode(), dialect=3)


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
    assert ((read.documents, read.warnings), read.disks["vda"].granularity) == ((len(sums), ()), {4096: sums[-1]})


def test_documents_of_several_traces_are_refused_but_one_may_begin_before_any_request() -> None:
    assert read_blkalgn(file({}, {}, {4096: 3})).disks["vda"].total == 3
    assert read_blkalgn(file({4096: 1000, 8192: 2}, {4096: 1000, 8192: 1})).disks["vda"].total == 1001
    for counts in (({4096: 3}, {8192: 9}), ({4096: 3}, {4096: 2}), ({4096: 900}, {4096: 3}), ({4096: 3}, {})):
        with pytest.raises(ParseError, match=r"f: (its document 2 does not continue|holds not one)"):
            read_blkalgn(file(*counts), "f")


@given(st.integers(1, 90))
def test_a_last_document_that_was_cut_off_is_left_out_and_that_is_said(left: int) -> None:
    whole, last = file({4096: 3}), file({4096: 9})
    read = read_blkalgn(whole + last[:left])
    assert (read.disks["vda"].total, read.warnings) == (3, ("its last document is cut off, and left out",))
    with pytest.raises(ParseError, match="f:1: is no JSON"):
        read_blkalgn(last[:left].replace(b"\n", b""), "f")


@pytest.mark.parametrize("other", [b"x", b"]", b"20+0 records in", "ä".encode()])
def test_what_else_stands_beside_a_document_makes_it_no_such_file(other: bytes) -> None:
    for text in (file({4096: 3}) + other, other + file({4096: 3})):
        with pytest.raises(ParseError, match=r"f:\d+: is no JSON"):
            read_blkalgn(text, "f")
