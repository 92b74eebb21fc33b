"""A guest whose root is hostile: its agent answers what it likes, over the real stream."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from attacks import liar
from attacks.liar import EXIT, OUTPUT, STARTED
from laboratory import Laboratory
from laboratory.guests import guests
from laboratory.samples import sample
from storlab.base.errors import CommandFailed, NodeError, NodeLost, TooMuch
from storlab.nodes import node as nodes
from storlab.nodes import process
from storlab.nodes.agent import connection, steps
from storlab.nodes.agents import running_agent
from storlab.nodes.kinds.vm import guest
from storlab.nodes.node import Node
from storlab.probes.sampling import sampling
from storlab.run.trial import fetch
from storlab.run.trial.fetch import Allowance, fetch_folder

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that sends without end does not see that its stream was closed."""
    monkeypatch.setattr("storlab.nodes.agents._EXIT_TIMEOUT", 1.0)


DATA = {"event": "data"}
CLOCK = {"event": "clock", "monotonic_ns": 1, "realtime_ns": 1}
SAMPLE = {"event": "sample", "monotonic_ns": 1, "realtime_ns": 1, "late_ns": 0, "sizes": [3], "payload": "abc"}
DONE = {"event": "done"}
STEPS = {"event": "steps", "results": [{"size": 0}, {}]}
HELLO = {"id": 0, **liar.HELLO}


def on_liar(work: Callable[[Node], Awaitable[T]], **lies: Any) -> T:
    """What ``work`` gives on a node whose agent lies so; nothing hangs."""
    argv = [sys.executable, liar.__file__, json.dumps(lies)]

    async def run() -> T:
        async with asyncio.timeout(60), running_agent("guest", argv) as node:
            return await work(node)

    return asyncio.run(run())


def printed(*lines: str) -> list[dict[str, Any]]:
    """The answers to a command that prints this."""
    return [STARTED, *({**OUTPUT, "payload": line} for line in lines), EXIT]


async def everything(node: Node) -> None:
    """All that a controller asks of a node."""
    await node.clock()
    await node.facts({"sh": ["sh"]})
    await node.run(["true"])
    await node.read("/file")
    await node.write("/file", b"text")
    await node.carry_out(steps.read("/file", 10), steps.look("/file"))
    async for _ in node.sample(["/proc/stat"], 0.01):
        pass


FACTS: dict[str, Any] = {
    "event": "facts", "kernel": {"release": "6", "version": "#1", "machine": "x"}, "os": None, "hostname": "h",
    "cpus": {"online": 1, "model": None}, "memory": {"total_bytes": 1, "available_bytes": 1}, "modules": [],
    "filesystems": [], "clocks": {"source": None, "resolution_ns": 1}, "cgroup": "v2", "uid": 0,
    "virtualization": None, "tools": {"sh": None},
}  # fmt: skip

NAMED: dict[str, dict[str, Any]] = {
    "DATA": DATA,
    "CLOCK": CLOCK,
    "SAMPLE": SAMPLE,
    "DONE": DONE,
    "STEPS": STEPS,
    "FACTS": FACTS,
}
NAMED |= {"STARTED": STARTED, "EXIT": EXIT}


def event(told: str | dict[str, Any]) -> dict[str, Any]:
    """By its name, or in full; ``like`` a named one, but for some keys."""
    if isinstance(told, str):
        return NAMED[told]
    return {**NAMED.get(told.get("like", ""), {}), **{key: value for key, value in told.items() if key != "like"}}


LIES: dict[str, dict[str, Any]] = {
    name: {op: [event(told) for told in events]} for name, op, events in json.loads(sample(__file__, "cases/lies.json"))
} | {
    "a header nested without end": {"clock": [{"header": '{"id":' + "[" * 60_000 + "]" * 5_000}]},
    "an id of a thousand digits": {"clock": [{"header": f'{{"id": {"9" * 1000}, "event": "done"}}'}]},
    "more results than steps can have": {"steps": [{**STEPS, "results": [{}] * 257}]},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_the_protocol_does_not_know_ends_the_node_with_a_reason(lie: str) -> None:
    with pytest.raises(NodeLost, match=r"^node guest: its agent |^node guest: a frame "):
        on_liar(everything, **{"facts": [FACTS], "sample": [{**DONE}], **LIES[lie]})


def test_an_honest_answer_to_everything_is_taken() -> None:
    on_liar(everything, facts=[FACTS], sample=[SAMPLE, DONE])


@pytest.mark.parametrize(
    "greeting",
    [
        {"id": 0, "event": "hello"},
        {**HELLO, "protocol": "1"},
        {**HELLO, "pid": None},
        {**HELLO, "pid": 2**80},
        {**HELLO, "hostname": ["x"]},
        {"header": "[[[["},
    ],
)
def test_a_greeting_of_wrong_types_ends_the_node_with_a_reason(greeting: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match=r"^node guest: "):
        on_liar(everything, greeting=greeting)


def test_an_agent_that_never_answers_the_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storlab.nodes.agents.HELLO_TIMEOUT", 1.0)
    with pytest.raises(NodeLost, match="did not say hello within 1 s"):
        on_liar(everything, hello=[{"id": 1, "raw": ""}])


def test_a_command_that_ends_before_it_started_has_failed() -> None:
    with pytest.raises(CommandFailed, match="node guest: true ended before it was started"):
        on_liar(lambda node: node.run(["true"]), run=[{**OUTPUT, "payload": "x"}, EXIT])


def test_a_command_that_prints_nothing_over_and_over_ends_its_node() -> None:
    with pytest.raises(NodeLost, match="its agent sent 'stdout' without a byte"):
        on_liar(lambda node: node.run(["yes"]), run=[STARTED, {**OUTPUT, "endless": True}])


def test_a_command_whose_end_is_never_told_is_waited_for_no_longer_than_its_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_REST", 0.3)

    async def stopped(node: Node) -> None:
        node.connection.patience = 0.3
        command = await node.start(["probe"])
        assert await command.first_line() == b"begun"
        await command.last_word(0.3)

    with pytest.raises(NodeLost, match="can't be stopped, not even by KILL"):
        on_liar(stopped, run=[STARTED, {**OUTPUT, "payload": "begun\n"}], stop=[DONE])


def test_what_is_printed_or_read_without_end_is_stopped_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT", 4 * 1024**2)
    endless = {"payload": 256 * 1024, "endless": True}
    with pytest.raises(TooMuch, match="node guest: yes was killed, as it printed more than 4M"):
        on_liar(lambda node: node.run(["yes"]), run=[STARTED, {**OUTPUT, **endless}])
    with pytest.raises(TooMuch, match="node guest: /proc/stat holds more than the 4M that are read of it"):
        on_liar(lambda node: node.read("/proc/stat", 4 * 1024**2), read=[{**DATA, **endless}])


def test_samples_without_end_are_no_samples(tmp_path: Path) -> None:
    async def sample(node: Node) -> None:
        async with sampling(node, ["/proc/stat"], 0.05, tmp_path):
            await node.connection.gone.wait()
        await node.clock()

    with pytest.raises(NodeLost, match="its agent sends samples faster than it was asked to"):
        on_liar(sample, sample=[{**SAMPLE, "endless": True}])


def test_large_samples_are_stopped_at_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nodes, "SAMPLED", 4 * 1024**2)
    large = {**SAMPLE, "sizes": [1024**2], "payload": 1024**2}

    async def sample(node: Node) -> None:
        async with sampling(node, ["/proc/stat"], 0.05, tmp_path):
            await asyncio.sleep(1)

    with pytest.raises(TooMuch, match="node guest: one sampling brought more than 4M"):
        on_liar(sample, sample=[large] * 6)


def test_events_that_nobody_takes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_UNREAD", 1024**2)

    async def dawdle(node: Node) -> None:
        async for _ in node.sample(["/proc/stat"], 0.01):
            await asyncio.sleep(3600)

    async def take_one_and_wait(node: Node) -> None:
        slow = asyncio.create_task(dawdle(node))
        await node.connection.gone.wait()
        slow.cancel()
        await node.clock()

    with pytest.raises(NodeLost, match="its agent sends more than is taken: 1M wait"):
        on_liar(take_one_and_wait, sample=[{**SAMPLE, "endless": True}])


def fetching(into: Path, **limits: int) -> Callable[[Node], Awaitable[None]]:
    """What fetches a load's folder."""

    async def work(node: Node) -> None:
        await fetch_folder(node, "/load", into, Allowance(**limits))

    return work


ESCAPES = [
    "../escaped", "../../escaped", "/escaped", "a/../../escaped", "a//escaped", ".", "..", "a/.", "./escaped", "",
    "x" * 256, "/".join("abcdefghijklmnopqrstuvwxyz"), "exit.json/x", "stdout/x",
]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_a_name_that_leads_out_of_the_folder_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    into = tmp_path / "a" / "b" / "raw"
    into.parent.mkdir(parents=True)
    found = {"do files": f"3 {name}\0", "do read": "abc"}
    with pytest.raises(NodeError, match=r"^node guest: it says that /load holds .*, which can be no file there$"):
        on_liar(fetching(into), **found)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not Path("/escaped").exists()


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        *((f"{entry}\0", "") for entry in ("x", "3", "-3 x", "3x x", " x", "9" * 400 + " x")),
        *((f"3 {one}\0003 {other}\0", ".* twice$") for one, other in (("x", "x"), ("x", "x/y"), ("x/y", "x"))),
    ],
)
def test_a_listing_that_is_none_or_names_a_file_twice_is_refused(listing: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=rf"^node guest: it says that /load holds {says}"):
        on_liar(fetching(tmp_path), **{"do files": listing})


def test_links_that_are_there_already_are_never_written_through(tmp_path: Path) -> None:
    secret, into = tmp_path / "secret", tmp_path / "raw"
    secret.write_text("kept")
    into.mkdir()
    (into / "link").symlink_to(secret)
    (into / "folder").symlink_to(tmp_path)
    for name in ("link", "folder/secret"):
        with pytest.raises(NodeError, match="twice"):
            on_liar(fetching(into), **{"do files": f"3 {name}\0", "do read": "abc"})
    assert secret.read_text() == "kept"


GROWS = {"do files": "3 x\0", "do read": 64 * 1024 + 1, "read": [{**DATA, "payload": 256 * 1024, "endless": True}]}


def test_more_than_a_trial_may_bring_is_not_fetched_whatever_was_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listing = "".join(f"0 {number}\0" for number in range(30))
    with pytest.raises(TooMuch, match="node guest: its loads left more than the 10000 files that a trial may bring"):
        on_liar(fetching(tmp_path / "files", files=20), **{"do files": listing})
    assert len(list((tmp_path / "files").iterdir())) == 20
    with pytest.raises(TooMuch, match="node guest: its loads left more than the 8G of files"):
        on_liar(fetching(tmp_path / "bytes", size=1024**2), **GROWS)
    assert (tmp_path / "bytes" / "x").stat().st_size <= 1024**2
    monkeypatch.setattr(fetch, "FILE", 1024**2)
    with pytest.raises(TooMuch, match="node guest: /load/x holds more than the 1M that are read of it"):
        on_liar(fetching(tmp_path / "file"), **GROWS)


FALSE_FIND = "rm -f /usr/bin/find; printf '%s\\n' '#!/bin/sh' 'printf \"3 ../../../../escaped\\\\0\"' > /usr/bin/find"


@pytest.mark.needs("guests")
def test_a_real_guest_whose_root_replaced_find_is_listed_by_its_agent_all_the_same(lab: Laboratory) -> None:
    ended = lab.run(guests(f"{FALSE_FIND}; chmod 755 /usr/bin/find", count="1"), "--unconfined")
    (record,) = lab.records()
    assert record.status == "done", ended
    assert not list(lab.folder.rglob("escaped"))
    assert not lab.leftovers()


@pytest.mark.needs("guests")
def test_a_real_guest_that_floods_its_console_is_ended(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "MAX_CONSOLE", 64 * 1024)
    lab.execute(guests("yes 0123456789012345678901234567890123456789 > /dev/console", count="1"))
    (record,) = lab.records()
    assert "its console has more than" in (record.reason or "")
    assert not lab.leftovers()
