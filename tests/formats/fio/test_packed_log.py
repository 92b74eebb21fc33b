"""Logs that fio packed: the same samples as ``fio --inflate-log`` prints."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.fio.log_lines import is_cut, map_chunks
from storlab.formats.fio.logs import find_logs, read_series

from .program import PACK, run_fio
from .samples import lines_frame, read_lines

ANY_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OFFSET, ISSUE_TIME = 1 << 31, 1 << 28
FORMS = {"fio 3.0": "<QQII", "fio 3.8": "<QQIIQ", "fio 3.38": "<QQQIIQ"}


def sample(form: str, time: int, value: int, direction: int, size: int, flags: int = 0) -> bytes:
    """One as it is in the memory of a fio of this version, with what its flags say that follows."""
    values = {"<QQII": (time, value, direction | flags, size), "<QQIIQ": (time, value, direction | flags, 7, size)}
    packed = struct.pack(form, *values.get(form, (time, value, 0, direction | flags, 7, size)))
    return packed + b"\1\2\3\4\5\6\7\x08" * (bool(flags & OFFSET) + bool(flags & ISSUE_TIME))


def ran(folder: Path, *options: str) -> None:
    load = ["--name=x", "--ioengine=null", "--rw=randrw", "--bs=4k", "--size=8M", "--output-format=json"]
    run_fio(*load, *PACK, *options, cwd=folder).check_returncode()


@pytest.mark.parametrize("options", [[], ["--log_offset=1"], ["--log_prio=1"], ["--log_avg_msec=10"]])
def test_a_packed_log_holds_what_fio_itself_prints_of_it(options: list[str], tmp_path: Path) -> None:
    ran(tmp_path, "--write_lat_log=x", "--write_iops_log=x", *options)
    for kind in ("clat", "lat", "iops"):
        path = find_logs(tmp_path, "x", kind)[1]
        assert path.name.endswith(".log.fz")
        inflated = run_fio(f"--inflate-log={path}", cwd=tmp_path).stdout.decode()
        expected = [tuple(map(int, line.split(", ")[:4])) for line in inflated.splitlines()]
        assert len(expected) > (100 if not options or "avg" not in options[0] else 0)
        assert read_lines(path).rows() == expected
        assert not is_cut(path)


def test_of_a_log_that_lies_there_packed_and_unpacked_the_latter_is_read(tmp_path: Path) -> None:
    (tmp_path / "x_clat.1.log.fz").write_bytes(b"rubbish")
    (tmp_path / "x_clat.1.log").write_text("100, 5000, 0, 0, 0\n")
    assert read_series(tmp_path, "x", 0.1)["value"].to_list() == [5e-6]


VALUES = st.tuples(
    st.integers(0, 10**9), st.integers(0, 1 << 40), st.integers(0, 2), st.sampled_from([0, 512, 4096, 1 << 20])
)


@ANY_FOLDER
@given(
    form=st.sampled_from(sorted(FORMS.values())),
    flags=st.sampled_from([0, OFFSET, 1 << 30, OFFSET | ISSUE_TIME]),
    streams=st.lists(st.lists(VALUES, max_size=40), min_size=1, max_size=4),
    chunk=st.integers(1, 5000),
)
def test_samples_of_every_version_are_told_apart(
    form: str, flags: int, streams: list[list[tuple[int, ...]]], chunk: int, tmp_path: Path
) -> None:
    path = tmp_path / "x_clat.1.log.fz"
    # Times and values that are no directions: samples that are all 0 fit any layout.
    rows = [(100 + time, 1000 + value, way, size) for stream in streams for time, value, way, size in stream]
    packed = [
        zlib.compress(b"".join(sample(form, 100 + t, 1000 + v, way, size, flags) for t, v, way, size in stream))
        for stream in streams
    ]
    path.write_bytes(b"".join(packed))
    assert [row for frame in map_chunks(path, lines_frame, chunk) for row in frame.rows()] == rows
    assert not is_cut(path)


def test_a_packed_log_that_was_cut_off_gives_the_samples_that_are_whole(tmp_path: Path) -> None:
    ran(tmp_path, "--write_lat_log=x")
    path = find_logs(tmp_path, "x", "clat")[1]
    whole = read_lines(path)
    path.write_bytes(path.read_bytes()[:-400])
    cut = read_lines(path)
    assert 0 < cut.height < whole.height
    assert cut.equals(whole[: cut.height])
    assert is_cut(path)


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (b"rubbish", "damaged, cannot be unpacked"),
        (zlib.compress(sample("<QQIIQ", 9, 9, 1, 4096)) + b"rubbish", "damaged, cannot be unpacked"),
        (zlib.compress(b"\xff" * 400), "in a form that isn't known: unpack it by the fio that wrote it"),
        (zlib.compress(b"a text of some length, and no samples" * 9), "in a form that isn't known"),
        (zlib.compress(bytes(7)), "in a form that isn't known"),
    ],
)
def test_what_is_no_packed_log_is_refused_by_name(contents: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x_clat.1.log.fz"
    path.write_bytes(contents)
    with pytest.raises(ParseError, match=says) as caught:
        read_lines(path)
    assert caught.value.source == str(path)
    assert not is_cut(path)


def test_a_small_file_that_unpacks_to_much_needs_little_memory_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "x_clat.1.log.fz"
    path.write_bytes(zlib.compress(sample("<QQIIQ", 9, 9, 1, 4096) * 500_000))
    sizes = list(map_chunks(path, lambda lines: lines.time.size))
    assert sum(sizes) == 500_000
    assert max(sizes) < 20_000


WHOLE = zlib.compress(sample("<QQIIQ", 9, 9, 1, 4096) * 50) * 2


@ANY_FOLDER
@given(st.data())
def test_a_damaged_one_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    at, until = sorted((data.draw(st.integers(0, len(WHOLE))), data.draw(st.integers(0, len(WHOLE)))))
    inside = data.draw(st.binary(max_size=20))
    path = tmp_path / "x_clat.1.log.fz"
    path.write_bytes(data.draw(st.sampled_from([WHOLE[:at] + inside + WHOLE[until:], zlib.compress(inside)])))
    is_cut(path)
    try:
        read_lines(path)
    except ParseError as error:
        assert error.source == str(path)
