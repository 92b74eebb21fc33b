"""What is kept of an imported file is what was read of it, without all files being held at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storlab.errors import UserError
from storlab.records.imported_text import Text, without_bom


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
