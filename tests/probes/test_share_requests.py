"""Probe ``share-requests``: counts of a kernel's histograms before and after a load, by kind and mount."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from attacks.odd_files import bounded
from storlab.base.errors import ParseError
from storlab.probes.base import NOTES, ProbeRecord, Window
from storlab.probes.share_requests import INSTANCE, Entry, Histogram, ShareRequestsProbe, parse_histogram
from storlab.probes.subject import ShareMount, Subject

from . import write_samples

GOLDEN = Path(__file__).parent / "golden"
SEND, END, OF_9P = (
    (GOLDEN / f"{name}.txt").read_text() for name in ("fuse_request_send", "fuse_request_end", "9p_client_req")
)
NONE = "# event histogram\n\n\nTotals:\n    Hits: 0\n    Entries: 0\n    Dropped: 0\n"
FULL = END.replace("Dropped: 0", "Dropped: 1")
VIRTIOFS = ShareMount(protocol="fuse", path="/mnt/a", device="0:35")
UNUSED = ShareMount(protocol="fuse", path="/mnt/b", device="0:36")
NINE_P = ShareMount(protocol="9p", path="/mnt/c", device="0:37")
EVERY = Subject(group="vm", shares=(VIRTIOFS, UNUSED, NINE_P))
PATHS = [
    f"{INSTANCE}/events/{each}/hist" for each in ("fuse/fuse_request_send", "fuse/fuse_request_end", "9p/9p_client_req")
]


def record(raw: Path, looks: list[list[str | None]], *shares: ShareMount) -> ProbeRecord:
    """As the probe leaves it: the three histograms, looked at before the load and after it."""
    write_samples(raw, PATHS, *((9.0 + 12 * at, each) for at, each in enumerate(looks)))
    (raw / NOTES).write_bytes(b"[]")
    return ProbeRecord(raw, Window(10.0, 20.0), Subject(group="vm", shares=shares))


def counted(raw: Path, *shares: ShareMount, before: tuple[str, str, str] = (NONE, NONE, NONE)) -> dict[str, float]:
    left = record(raw, [[*before], [SEND, END, OF_9P]], *shares)
    return {name: value for name, value in ShareRequestsProbe().parse(left).totals().items() if value}


def test_requests_are_counted_by_kind_and_those_of_virtiofs_in_bytes(tmp_path: Path) -> None:
    assert counted(tmp_path, VIRTIOFS) == {
        "requests": 222, "requests.read": 101, "requests.write": 100, "requests.metadata": 21, "requests.lookup": 2,
        "requests.getattr": 11, "requests.open": 8, "requests.bytes": 426870, "replies.bytes": 415384,
    }  # fmt: skip
    assert counted(tmp_path, NINE_P) == {
        "requests": 319, "requests.read": 101, "requests.write": 100, "requests.metadata": 118, "requests.lookup": 5,
        "requests.getattr": 7, "requests.open": 6, "requests.xattr": 100,
    }  # fmt: skip
    totals = ShareRequestsProbe().parse(record(tmp_path, [[NONE] * 3, [SEND, END, OF_9P]], NINE_P)).totals()
    assert totals["requests.sync"] == 0
    assert "requests.bytes" not in totals, "not known, which is another thing than none"


def test_mounts_of_one_node_are_added_up_and_what_was_before_the_load_is_none_of_it(tmp_path: Path) -> None:
    assert counted(tmp_path, UNUSED) == {}
    assert counted(tmp_path, VIRTIOFS, UNUSED, NINE_P)["requests"] == 222 + 319
    assert counted(tmp_path, VIRTIOFS, NINE_P, before=(SEND, END, OF_9P)) == {}


@pytest.mark.parametrize(
    ("looks", "said"),
    [([[NONE, NONE, NONE]], "not counted both before the load and after it"),
     ([[NONE] * 3, [None, END, OF_9P]], "there are no counts of fuse/fuse_request_send"),
     ([[NONE] * 3, [SEND[:300], END, OF_9P]], "there are no counts of fuse/fuse_request_send"),
     ([[NONE] * 3, [SEND, FULL, OF_9P]], "no room for all counts of fuse/fuse_request_end"),
     ([[SEND, END, OF_9P], [SEND.replace("101", "100"), END, OF_9P]], "ran backwards")],
)  # fmt: skip
def test_counts_that_are_missing_or_wrong_are_refused(tmp_path: Path, looks: list[list[str | None]], said: str) -> None:
    with pytest.raises(ParseError, match=said):
        ShareRequestsProbe().parse(record(tmp_path, looks, VIRTIOFS))


def test_a_kernel_that_can_not_count_leaves_a_warning_and_devices_have_its_numbers(tmp_path: Path) -> None:
    left = record(tmp_path, [], VIRTIOFS)
    (tmp_path / NOTES).write_bytes(orjson.dumps(["share-requests: Linux 6.1.0 has no tracepoint"]))
    found = ShareRequestsProbe().parse(left)
    assert found.metrics.is_empty()
    assert found.warnings == ("share-requests: Linux 6.1.0 has no tracepoint",)
    assert (VIRTIOFS.number, ShareMount(protocol="fuse", path="/", device="8:1").number) == (35, 8 << 20 | 1)
    with pytest.raises(ValidationError):
        ShareMount(protocol="fuse", path="/", device="0x23")


names = st.from_regex(r"[a-z_]{1,9}", fullmatch=True).filter(lambda name: name != "hitcount")
counts = st.integers(0, 10**18 - 1)
entries = st.builds(
    Entry, st.dictionaries(names, counts, min_size=1, max_size=3), counts, st.dictionaries(names, counts, max_size=2)
)


@given(st.lists(entries, max_size=5).map(tuple), counts)
def test_a_histogram_is_read_as_the_kernel_prints_it(found: tuple[Entry, ...], dropped: int) -> None:
    assert parse_histogram(printed(found, dropped)) == Histogram(found, dropped)


@given(st.lists(entries, max_size=3).map(tuple), counts, st.data())
def test_a_histogram_that_was_cut_off_is_none(found: tuple[Entry, ...], dropped: int, data: st.DataObject) -> None:
    text = printed(found, dropped)
    assert parse_histogram(text[: data.draw(st.integers(0, text.index("    Dropped")))]) is None


def printed(found: tuple[Entry, ...], dropped: int) -> str:
    """See ``hist_trigger_entry_print`` in kernel/trace/trace_events_hist.c."""
    lines = [
        f"{{ {', '.join(f'{name}: {value:10}' for name, value in each.keys.items())} }} hitcount: {each.hits:10}"
        + "".join(f"  {name}: {value:10}" for name, value in each.sums.items())
        for each in found
    ]
    body = "".join(f"{line}\n" for line in lines)
    return f"# event histogram\n#\n\n{body}\nTotals:\n    Hits: 1\n    Entries: 1\n    Dropped: {dropped}\n"


@pytest.mark.parametrize(
    "piece", ["x", "x: ", "9", "a:1", "x:" + " " * 60_000], ids=["name", "names", "digits", "pairs", "blanks"]
)
def test_a_histogram_with_an_endless_line_holds_nobody_up(piece: str) -> None:
    with bounded(20):
        assert parse_histogram("{ " + piece * (70_000 // len(piece)) + " } hitcount: 1") is None
