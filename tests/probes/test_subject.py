"""Subjects: which end of a chain a node is, what there is to watch on it; and what no probe can be asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.base.errors import ParseError
from storlab.metrics import without_end
from storlab.probes.subject import (
    NAME,
    Interface,
    ProcessGroup,
    Service,
    ShareMount,
    Subject,
    of_machine,
    read_subject,
    write_subject,
)
from storlab.registry import probe_types

names = st.text("abcxyz-0123456789", min_size=1, max_size=8)
tuples = st.lists(names, max_size=3).map(tuple)
subjects = st.builds(
    Subject,
    group=names,
    end=st.sampled_from(["load", "below"]),
    above=tuples,
    disks=st.none() | tuples,
    interfaces=st.lists(st.builds(Interface, name=names, address=names, peers=tuples), max_size=2).map(tuple),
    processes=st.dictionaries(
        names, st.builds(ProcessGroup, role=st.sampled_from(["guest", "server"]), pid=st.integers(1), cgroup=names)
    ),
    shares=st.lists(
        st.builds(ShareMount, protocol=st.sampled_from(["fuse", "9p"]), path=names, device=st.just("0:35")), max_size=2
    ).map(tuple),
    pools=tuples,
    servers=st.lists(st.builds(Service, dialect=names, address=names, here=st.booleans()), max_size=2).map(tuple),
)


@given(subjects)
def test_a_subject_is_read_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> None:
    raw = tmp_path_factory.mktemp("subject") / "not" / "there"
    write_subject(raw, subject)
    assert read_subject(raw) == subject


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not a subject"), (b"[]", "is not a subject"), (b"\xff", "is not a subject"),
        (b"{}", "group: Field required"),
        (b'{"group": "a", "end": "middle"}', "end: Input should be 'load' or 'below'"),
        (b'{"group": "a", "disks": "sda"}', "disks: "),
        (b'{"group": "a", "processes": {"vm": {"role": "guest", "pid": "x"}}}', "processes.vm.pid: "),
        (b'{"group": "a", "disk": "sda"}', "disk: Extra inputs"),
    ],
)  # fmt: skip
def test_a_damaged_subject_is_named_with_what_is_wrong(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(ParseError, match=f"{NAME}:1: .*{message}"):
        read_subject(tmp_path)


def test_a_folder_without_a_subject_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=f"{NAME}:1: cannot be read: No such file or directory"):
        read_subject(tmp_path)


def test_what_is_there_is_known_by_kind_and_can_not_be_changed() -> None:
    assert Subject(group="vm").kinds == {"machine"}
    assert Subject(group="vm", disks=()).kinds == {"machine", "disks"}, "a folder whose disk is not known"
    everything = Subject(
        group="db", disks=("vda",), interfaces=(Interface(name="storlab0", address="10.0.0.2"),),
        processes={"mariadb": ProcessGroup(role="server", pid=7)},
        servers=(Service(dialect="mysql", address="10.0.0.2:3306", here=True),),
    )  # fmt: skip
    assert everything.kinds == {"machine", "disks", "interfaces", "processes", "server"}
    with pytest.raises(ValidationError):
        Subject(group="vm").group = "other"  # type: ignore[misc]


def test_what_is_not_the_loads_end_is_told_apart_by_its_group() -> None:
    assert Subject(group="vm").source("probe:stalls") == "probe:stalls"
    below = Subject(group="store", end="below").source("probe:stalls")
    assert below == "probe:stalls@store"
    assert without_end(below) == without_end("probe:stalls") == "probe:stalls"
    host = Subject(group="host", end="below", above=("vm-1", "vm-2"), disks=("sda",), processes=QEMU)
    machine = of_machine({"host": host, "n": Subject(group="n", disks=("loop0",))}, "host")
    assert (machine.end, machine.group, machine.disks, machine.source("x")) == ("below", "host", ("sda",), "x@host")
    diskless = of_machine({"host": Subject(group="host", end="below", processes=QEMU)}, "host")
    assert (diskless.end, diskless.disks) == ("below", None)


QEMU = {name: ProcessGroup(role="guest", pid=7) for name in ("vm-1", "vm-2")}


def test_a_machine_is_below_where_it_serves_others_but_the_loads_end_where_a_load_runs_on_it() -> None:
    both = {"n-1": Subject(group="n", disks=("loop0",)), "n-2": Subject(group="n", disks=("loop1", "loop0"))}
    machine = of_machine({"host": Subject(group="host"), **both}, "host")
    assert (machine.end, machine.disks) == ("load", ("loop0", "loop1"))
    store = Subject(group="store", end="below", above=("client",), disks=("loop0",))
    client = Subject(group="client", disks=("nbd0",))
    machine = of_machine({"host": Subject(group="host"), "store": store, "client": client}, "host")
    assert (machine.end, machine.disks) == ("load", ("nbd0",))
    store = Subject(group="store", end="below", above=("client",), disks=("vda",))
    assert of_machine({"store": store}, "store") == store


REFUSED = json.loads((Path(__file__).parent / "cases" / "refused.json").read_text())
"""Kind, keys, and what the refusal says."""


@pytest.mark.parametrize(("kind", "keys", "reason"), REFUSED, ids=str)
def test_what_a_probe_can_not_be_asked_for_is_refused_with_its_reason(
    kind: str, keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        probe_types()[kind].model_validate(keys)
    assert reason in str(refused.value)
