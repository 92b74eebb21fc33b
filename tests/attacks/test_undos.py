"""A crafted journal, for each way of undoing something: what is undone is proved by the run's own name, or by more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import orjson
import pytest

from laboratory import Laboratory
from laboratory.studies import directory
from storlab.base.errors import StorlabError
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.nodes.settings import KERNEL_FILES
from storlab.nodes.undo import OF_RUN
from storlab.records.manifest import Manifest, write_manifest
from storlab.run.recovery import state
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.undoing import undo_table

RUN, OTHER = "20260102-030405-abcd", "20260102-030405-dcba"
HOST = NodeIdentity("host", "local", "", Machine("0" * 32, "1" * 32))

FOREIGN: Mapping[str, Any] = {
    "path": "/srv/other/data", "folders": ["/srv/other/data"], "file": "/srv/other/disk.img", "device": "/dev/vdb",
    "configuration": "/etc/ksmbd/ksmbd.conf", "name": "somebodys", "cgroup": "somebodys", "network": "somebodys",
    "daemon": "iscsid", "target": "iqn.2001-04.com.example:disk", "initiator": "iqn.2001-04.com.example:host",
    "subsystem": "nqn.2014-08.com.example:disk", "dataset": "tank/home", "pool": "tank", "program": "x",
    "signal": "SIGTERM", "patience": 1.0, "port": 4420, "host": "192.0.2.1", "mac": "525400123456", "node": "host",
    "release": "6.1.0", "kernels": [os.uname().release], "before": 1024, "wanted": 1048576, "address": "0000:00:01.0",
    "driver": "nvme", "mtu": 1500, "on": ["tso"], "off": [], "interface": "eth0", "parameter": "zfs_arc_max",
    "value": "0", "cache": "write back", "uuid": "", "nonce": "0" * 32, "was": "", "paths": [KERNEL_FILES[0]],
    "boot": "", "values": ["12345"], "numbers": [""], "number": 0, "sequence": 0, "unused": True,
}  # fmt: skip
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "aoe.forget": {"device": "e1.2"},
    "mapper.remove": {"name": "storlab-somebodys"},
    "nbd.disconnect": {"device": "/dev/nbd0"},
    "nbd.write-cache": {"device": "/dev/nbd0"},
    "network.restore-port": {"device": "tap1"},
    "nvme-target.remove": {"target": "nqn.2014-08.com.example:disk"},
    "nvme-tcp.disconnect": {"host": "00000000-0000-0000-0000-000000000000"},
    "tcp.restore": {"values": ["tcp_rmem=1 2 3"]},
    "uplink.remove": {"device": "storlab-abcd"},
}
BY_ITSELF = {
    "bcache.forget", "bcache.stop", "lvm.forget", "md.stop", "mkfs.forget", "mkfs.forget-log", "scsi-debug.unload",
    "swap.off",
}  # fmt: skip
"""What undoes only what it can recognise: by a UUID that is made of run and nonce."""


def foreign(name: str, run: str) -> dict[str, Any]:
    """Arguments that fit the model and name what is somebody else's, with the run's id where it is asked for alone."""
    model = undo_table()[name].arguments
    known = {"run": run, **FOREIGN, **SPECIAL.get(name, {})}
    missing = [field.name for field in msgspec.structs.fields(model) if field.name not in known]
    assert not missing, f"{name}: write into FOREIGN what {missing} may be of somebody else's"
    return {field.name: known[field.name] for field in msgspec.structs.fields(model)}


def test_each_undo_has_typed_arguments_and_a_proof() -> None:
    for name, undo in undo_table().items():
        msgspec.convert(foreign(name, RUN), undo.arguments)
        assert undo.noted or undo.naming or name in BY_ITSELF, name
        assert (undo.proof == "itself") == (name in BY_ITSELF), name


@pytest.mark.parametrize("name", sorted(undo_table().keys() - BY_ITSELF))
def test_what_is_not_the_runs_is_left_alone(name: str) -> None:
    undo = undo_table()[name]
    with pytest.raises(StorlabError, match="left alone"):
        undo.check(foreign(name, RUN), RUN)
    if not undo.noted:
        with pytest.raises(StorlabError, match="left alone"):
            undo.check(foreign(name, RUN), RUN, noted=True)


NAMING = [(name, field) for name, undo in sorted(undo_table().items()) for field in undo.naming]


@pytest.mark.parametrize(("name", "field"), NAMING, ids=lambda value: str(value))
@pytest.mark.parametrize("written", [RUN, f"xstorlab-{RUN}", f"storlab-{RUN}0", f"storlab-{OTHER}", "storlab"])
def test_each_name_must_bear_the_runs_own_id_whatever_the_others_do(name: str, field: str, written: str) -> None:
    """One that only looks alike, another run's, or one beside others that are right."""
    undo = undo_table()[name]
    arguments = foreign(name, RUN)
    for each in undo.naming:
        arguments[each] = _with(arguments[each], f"storlab-{RUN}")
    undo.check(arguments, RUN, noted=True)
    arguments[field] = _with(foreign(name, RUN)[field], written)
    with pytest.raises(StorlabError, match=r"left alone|damaged"):
        undo.check(arguments, RUN, noted=True)


def _with(value: Any, text: str) -> Any:
    if isinstance(value, list):
        return [_with(each, text) for each in value]
    begin, separator, _ = value.rpartition("/") if "/" in value else value.rpartition(":")
    if value.startswith("/"):
        return f"/srv/{text}/data"
    return f"{begin}{separator}{text}" if separator == ":" else f"{text}/data" if separator else text


PLAIN = {
    ("mkfs.forget", "device"), ("processes.end", "node"), ("server.stop", "program"), ("server.stop", "signal"),
    ("uplink.remove", "device"), ("zpool.forget", "device"), ("zpool.forget", "was"), ("mkfs.forget", "was"),
    ("bcache.forget", "device"), ("bcache.forget", "was"), ("bcache.forget", "nonce"), ("bcache.stop", "nonce"),
    ("lvm.forget", "device"), ("lvm.forget", "was"), ("lvm.forget", "nonce"),
    ("md.stop", "nonce"), ("mkfs.forget", "nonce"), ("nvme-tcp.disconnect", "host"),
    ("mkfs.forget-log", "device"), ("mkfs.forget-log", "was"), ("mkfs.forget-log", "nonce"),
    ("scsi-debug.unload", "nonce"), ("swap.off", "nonce"),
}  # fmt: skip
"""Texts of undoes without a note that are no names of the run's: each is compared with what is found, and no more."""


def test_no_undo_without_a_note_has_a_text_that_nobody_has_looked_at() -> None:
    found = set()
    for name, undo in undo_table().items():
        for field, hint in get_type_hints(undo.arguments, include_extras=True).items():
            if not undo.noted and field != "run" and _is_text(hint) and field not in undo.naming:
                found.add((name, field))
    assert found == PLAIN


def _is_text(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return OF_RUN not in hint.__metadata__ and _is_text(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType, list):
        return any(map(_is_text, get_args(hint)))
    return hint is str and get_origin(hint) is not Literal


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run, which has nothing set up."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_manifest(tmp_path, Manifest(RUN, "A", "0", (), datetime(2026, 1, 1, tzinfo=UTC)))
    return tmp_path / "journal.jsonl"


def test_what_is_restored_needs_the_note_that_was_written_when_it_was_changed(journal: Path) -> None:
    were = {name: FOREIGN[name] for name in ("paths", "values", "numbers")}
    with Journal(journal) as first:
        first.register(HOST, "settings.restore", were)
    with Journal(journal) as second:
        (entry,) = second.pending
        assert second.is_announced(entry)
        for crafted in ({**were, "values": ["54321"]}, {**were, "paths": [KERNEL_FILES[1]]}):
            assert not second.is_announced(replace(entry, arguments=crafted))
        second.undone(entry, "put back")
        assert not second.is_announced(entry), "a copy of the journal has no second use"
    other = journal.parent / "other"
    other.mkdir()
    write_manifest(other, Manifest(OTHER, "A", "0", (), datetime(2026, 1, 1, tzinfo=UTC)))
    with Journal(journal) as third:
        third.register(HOST, "settings.restore", were)
    (other / "journal.jsonl").write_bytes(journal.read_bytes())
    with Journal(other / "journal.jsonl") as fourth:
        assert not any(map(fourth.is_announced, fourth.pending))
    with Journal(journal) as fifth:
        fifth.undone(fifth.pending[0], None)


@pytest.mark.needs("root")
def test_a_note_that_another_user_made_is_none(journal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "_OF_ROOT", tmp_path / "run")
    arguments = {"before": 1024, "wanted": 2048}
    state.note(RUN, HOST, "nfsd.limit", arguments)
    (made,) = (tmp_path / "run" / "announced").iterdir()
    assert state.is_noted(RUN, HOST, "nfsd.limit", arguments)
    os.chown(made, 65534, 65534)
    assert not state.is_noted(RUN, HOST, "nfsd.limit", arguments)
    os.chown(made, 0, 0)
    made.parent.chmod(0o777)
    assert not state.is_noted(RUN, HOST, "nfsd.limit", arguments)


@pytest.mark.needs("root")
def test_clean_leaves_all_alone_that_a_crafted_journal_names_of_this_machines(lab: Laboratory) -> None:
    lab.execute(directory('command = { argv = ["true"] }'))
    node = next(line["node"] for line in lab.journal() if "registered" in line)
    names = sorted(undo_table().keys() - BY_ITSELF)
    lines = [
        {"time": "", "registered": number, "node": node, "undo": name, "arguments": foreign(name, lab.identity),
         "outlives_boot": True}
        for number, name in enumerate(names, start=1)
    ]  # fmt: skip
    (lab.out / "journal.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    before = Path(KERNEL_FILES[0]).read_text()
    result = lab.storlab("clean", lab.out)
    assert result.status != 0 and result.stdout.count("left alone") == len(names), str(result)
    assert Path(KERNEL_FILES[0]).read_text() == before
