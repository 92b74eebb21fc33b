"""Imported files: rounds of those whose user says that set-ups took turns, and what is kept of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import UserError
from storlab.measurements import Measurements
from storlab.records.files import Text, without_bom
from storlab.tools.cells import Measured, rounds_in_turns
from storlab.tools.importer import Part

START = datetime(2026, 3, 14, 9, tzinfo=UTC)


def trial(
    level: str, *, name: str = "f.json", at: float | None = None, lasted: float | None = None, number: int | None = None
) -> Measured:
    started = None if at is None else START + timedelta(seconds=at)
    part = Part(Measurements(), round=number, started=started, lasted=lasted)
    return Measured(name, f"fs = {level}", ord(level), part)


def given_in(order: str) -> list[Measured]:
    return [trial(level, name=f"{at}.json") for at, level in enumerate(order, start=1)]


def refused(trials: Sequence[Measured]) -> str:
    with pytest.raises(UserError) as error:
        rounds_in_turns(trials)
    return str(error.value)


def test_every_set_up_has_one_trial_a_round_in_the_order_given_or_of_the_times_in_the_files() -> None:
    assert rounds_in_turns(given_in("abbaab")) == ([1, 1, 2, 2, 3, 3], [1, 2, 3, 4, 5, 6], "given")
    assert rounds_in_turns(given_in("abccab"))[0] == [1, 1, 1, 2, 2, 2]
    files = [trial("a", at=0), trial("a", at=30), trial("b", at=10), trial("b", at=20)]
    assert rounds_in_turns(files) == ([1, 2, 1, 2], [1, 4, 2, 3], "times")
    assert rounds_in_turns(given_in("abbab"))[0] == [1, 1, 2, 2, 3]


@given(st.text("abc", min_size=1, max_size=24))
def test_what_is_taken_has_no_set_up_twice_in_a_round_and_all_of_them_in_each_but_the_last(order: str) -> None:
    try:
        rounds = rounds_in_turns(given_in(order))[0]
    except UserError:
        return
    for number in range(1, max(rounds) + 1):
        here = [level for level, at in zip(order, rounds, strict=True) if at == number]
        assert len(set(here)) == len(here)
        assert number == max(rounds) or set(here) == set(order)
    assert list(rounds) == sorted(rounds)


@given(st.permutations(range(12)), st.booleans())
def test_one_after_the_other_took_no_turns_in_whatever_order_files_are_given(order: list[int], overlap: bool) -> None:
    """AAAAAABBBBBB by the times in the files, which are given as ABBA and so on."""
    blocks = [trial("ab"[at >= 6], name=f"{at}.json", at=60.0 * at, lasted=70.0 if overlap else 30.0) for at in order]
    said = refused(blocks)
    assert ("ran at once" in said) if overlap else ("by the times in the files, fs = a comes again" in said)


@pytest.mark.parametrize(
    ("trials", "says"),
    [
        (given_in("aaabbb"), "in the order given, fs = a comes again (2.json, after 1.json) before fs = b had its"),
        (given_in("abbaba" + "aab"), "fs = a comes again (8.json, after 7.json)"),
        (given_in("aaa"), "there is one set-up only (fs = a), which can't take turns"),
        (given_in("abc"), "each of the 3 set-ups has one trial only, fs = a that of 1.json"),
        ([trial("a", at=0), trial("b"), trial("b", at=40, name="late.json"), trial("a", at=20, name="soon.json")],
         "soon.json is given after late.json and was measured before it (2026-03-14 09:00:20; 2026-03-14 09:00:40)"),
        ([trial("a", at=0, lasted=60), trial("b", at=30), trial("b", at=90), trial("a", at=120)],
         "began at 2026-03-14 09:00:30, before f.json had ended, which began at 2026-03-14 09:00:00 and took 60.0 s"),
        ([trial("a", number=1), trial("b", number=2), trial("b", number=1), trial("a", number=2)],
         "f.json (fs = b) is of round 2 by its own number"),
        ([trial("a", number=1), trial("b", number=1), trial("b", number=1), trial("a", number=1)],
         "is of round 1 by its own number, and of another"),
    ],
)  # fmt: skip
def test_what_contradicts_turns_is_refused_by_name(trials: list[Measured], says: str) -> None:
    said = refused(trials)
    assert said.startswith("--interleaved: ")
    assert says in said


def test_times_to_the_second_may_seem_to_overlap_by_less_than_one() -> None:
    """Each took 10.5 s and ended when its file says, but for the part of a second that the file leaves out."""
    ends = [int(end) for end in (10.9, 21.4, 31.9, 42.4)]
    files = [trial(level, at=end - 10.5, lasted=10.5) for level, end in zip("abba", ends, strict=True)]
    assert rounds_in_turns(files)[0] == [1, 1, 2, 2]
    assert "ran at once" in refused([trial("a", at=0.001, lasted=10), trial("b", at=9.5), *given_in("ba")])


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
def test_a_file_is_not_held_and_what_was_read_of_it_is_kept_or_it_is_refused(before: bytes, tmp_path: Path) -> None:
    path, place = tmp_path / "a.json", tmp_path / "kept"
    path.write_bytes(before + b"figures")
    text = Text.of_read(path, without_bom(path.read_bytes()))
    assert text.held is None
    text.keep(place)
    assert place.read_bytes() == b"figures"
    path.write_bytes(before + b"Figures")
    with pytest.raises(UserError, match=r"a\.json changed while it was imported; nothing was imported"):
        text.keep(tmp_path / "other")
    path.unlink()
    with pytest.raises(UserError, match=r"cannot read .*a\.json: No such file"):
        text.keep(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_can_be_read_only_once_is_held_and_what_is_read_in_pieces_is_copied(tmp_path: Path) -> None:
    pipe, place, long = tmp_path / "pipe", tmp_path / "kept", tmp_path / "long.pcap"
    os.mkfifo(pipe)
    Text.of_read(pipe, b"figures").keep(place)
    assert place.read_bytes() == b"figures"
    long.write_bytes(b"packets")
    text = Text.of_stream(long)
    text.keep(tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == b"packets"
    assert text.digest == Text.of_read(long, b"packets").digest
    with long.open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match=r"long\.pcap changed while it was imported; nothing was imported"):
        text.keep(tmp_path / "again")
