"""What the kernel says of shares, at both ends: golden output of real ones, and rubbish."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.layers.share.nfs_tables import (
    default_block_size,
    export_flags,
    export_line,
    parse_exports,
    parse_mountstats,
)
from storlab.layers.share.smb import parse_debug_data

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_mountstats_say_what_the_mount_of_a_path_really_has() -> None:
    found = parse_mountstats(golden("mountstats.txt"), "/srv/a b")
    assert (found["vers"], found["rsize"], found["timeo"], found["connections"]) == ("4.2", 65536, 50, 2)
    assert (found["flags"], found["transport"]) == (["nosharecache", "softerr"], "tcp")
    assert parse_mountstats(golden("mountstats.txt"), "/run") == {}, "no mount of NFS"


def test_the_kernels_exports_are_paths_with_their_flags() -> None:
    (path, flags), *more = parse_exports(golden("nfsd_exports.txt")).items()
    assert (path, more) == ("/tmp/d", [])
    assert {"sync", "fsid=0", "no_root_squash"} <= {*flags}


@given(st.text(min_size=1).map(lambda name: f"/{name}"), st.booleans(), st.booleans())
def test_the_line_of_an_export_has_one_path_and_its_flags_whatever_the_path(
    path: str, sync: bool, wdelay: bool
) -> None:
    line = export_line(path, sync=sync, wdelay=wdelay)
    assert line.count("\n") == 1
    assert line.count("\t") == 1
    flags = export_flags(line)
    assert (("sync" in flags), ("wdelay" in flags)) == (sync, wdelay)


@pytest.mark.parametrize(("mib", "kib"), [(464, 64), (512, 128), (2048, 512), (4096, 1024), (65536, 1024), (0, 8)])
def test_the_largest_request_of_nfs_is_what_the_kernel_would_take_by_its_memory(mib: int, kib: int) -> None:
    assert default_block_size(mib * 1024**2) == kib * 1024


def test_a_session_of_smb_is_known_by_its_share() -> None:
    text = golden("cifs_debug_data.txt")
    assert parse_debug_data(text, "//10.213.0.2/share") == {"dialect": "0x311", "signed": False, "encrypted": False}
    sealed = text.replace("Dialect 0x311", "Dialect 0x311 signed").replace(
        "SessionId: 0x1\n", "SessionId: 0x1 encrypted\n"
    )
    assert parse_debug_data(sealed, "//10.213.0.2/share") == {"dialect": "0x311", "signed": True, "encrypted": True}
    assert parse_debug_data(text, "//10.213.0.2/other") == {}


@given(st.text(alphabet=" \n\t:,=()*\\/0129abx", max_size=200))
def test_rubbish_is_no_error_and_no_share(text: str) -> None:
    assert parse_mountstats(text, "/x") == {}
    assert parse_debug_data(text, "//a/b") == {}
    parse_exports(text)
