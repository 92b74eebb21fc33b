"""``storlab lab check``: what ``storlab doctor`` looks at, on all hosts at once, side by side; and their disks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from storlab.base.errors import StorlabError
from storlab.base.text import one_line
from storlab.cli.options import ChosenHosts, Json, LabPath, lab_of, print_json
from storlab.cli.status import HOST_NOT_USABLE

if TYPE_CHECKING:
    from rich.text import Text

    from storlab.doctor.machine import Check
    from storlab.lab import Lab
    from storlab.ssh.machine import Machine

_GROUP = "Lab"
_AT_ONCE = 16  # hosts
_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "red")}


def check(which: ChosenHosts = None, lab: LabPath = None, json: Json = False) -> None:
    """Look at all hosts at once, and show side by side what they can do.

    As `storlab doctor` does here, without Storlab there. Also whether each host's disk may be used. The status is 3
    where a host can't be reached, is reserved by somebody else, or its disk is refused.
    """
    import asyncio  # slow to load, so only to run this

    found = lab_of(lab)
    checks = asyncio.run(_all(found, found.chosen(which or [])))
    if json:
        rows = [{"host": name, "checks": [asdict(each) for each in of]} for name, of in checks.items()]
        print_json({"hosts": rows})
    else:
        _show(checks)
    if any(each.group == _GROUP and each.status == "missing" for of in checks.values() for each in of):
        raise typer.Exit(HOST_NOT_USABLE)


async def _all(lab: Lab, names: Sequence[str]) -> dict[str, list[Check]]:
    import asyncio

    free = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> list[Check]:
        async with free:
            return await _checks(lab, name)

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def _checks(lab: Lab, name: str) -> list[Check]:
    import asyncio

    from storlab.doctor import examine
    from storlab.doctor.machine import Check, OtherMachine
    from storlab.ssh.machine import connected

    try:
        async with connected(lab.machines.destination(name)) as machine:
            agent = await _agent(machine)
            about = f"{machine.architecture}, {'root' if machine.uid == 0 else f'user {machine.uid}'}"
            reached = Check("reachable", _GROUP, "ok", about)
            own = [reached, await _reserved(machine), *await _disk(lab, name, machine, agent)]
            return [*own, *await asyncio.to_thread(examine, OtherMachine(machine, agent))]
    except StorlabError as error:
        return [Check("reachable", _GROUP, "missing", str(error))]


async def _agent(machine: Machine) -> str | None:
    import platform

    from storlab.nodes.kinds.ssh import agent_on

    return await agent_on(machine) if machine.architecture == platform.machine() else None


async def _reserved(machine: Machine) -> Check:
    from storlab.doctor.machine import Check
    from storlab.ssh.reservation import own_name, reservation_of

    found = await reservation_of(machine)
    if found is None:
        return Check("reserved", _GROUP, "ok", "no")
    if found.who == own_name():
        return Check("reserved", _GROUP, "ok", f"by {found}")
    return Check("reserved", _GROUP, "missing", f"by {found}")


async def _disk(lab: Lab, name: str, machine: Machine, agent: str | None) -> list[Check]:
    from storlab.doctor.machine import Check
    from storlab.layers.block.device import DeviceLayer
    from storlab.nodes.agents import running_agent

    host = lab.machines.hosts[name]
    if host.disk is None:
        return [Check("disk", _GROUP, "ok", "none named: files in its scratch folder")]
    if agent is None:
        return [Check("disk", _GROUP, "warn", f"{host.disk}: not looked at: no agent for {machine.architecture}")]
    layer = DeviceLayer(path=host.disk, wipe=host.wipe)
    async with running_agent(
        name, machine.argv(agent, "serve", "--cgroup", f"storlab-check.{os.getpid()}-{name}")
    ) as node:
        node.machine = machine.boot
        try:
            await layer.check_node(node)
            return [Check("disk", _GROUP, "ok", str(await layer.identify(node)))]
        except StorlabError as error:
            return [Check("disk", _GROUP, "missing", str(error).removeprefix(f"node {name}: "))]


def _show(checks: Mapping[str, Sequence[Check]]) -> None:
    """A table a group, a column a host. What hosts say alike is said once."""
    from rich.table import Table
    from rich.text import Text

    from storlab.cli.console import Console

    console = Console()
    groups = dict.fromkeys(each.group for of in checks.values() for each in of)
    for group in groups:
        table = Table(box=None, pad_edge=False)
        table.add_column(group, overflow="fold")
        names = [name for name, of in checks.items() if any(each.group == group for each in of)]
        for name in names:
            table.add_column(name, justify="center", overflow="fold")
        table.add_column("", overflow="fold")
        for what in dict.fromkeys(each.name for of in checks.values() for each in of if each.group == group):
            found = {
                name: next((each for each in checks[name] if (each.group, each.name) == (group, what)), None)
                for name in names
            }
            table.add_row(Text(what), *(_mark(each) for each in found.values()), Text(_said(found)))
        console.print(table)
        console.print()


def _mark(check: Check | None) -> Text:
    from rich.text import Text

    sign, colour = _MARKS[check.status] if check is not None else ("", "")
    return Text(sign, style=colour)


def _said(found: Mapping[str, Check | None]) -> str:
    """What the hosts say: once where they all say the same, else by host."""
    by_text: dict[str, list[str]] = {}
    for name, check in found.items():
        if check is not None:
            by_text.setdefault(one_line(check.says), []).append(name)
    if len(by_text) == 1 and None not in found.values():
        return next(iter(by_text))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in by_text.items())
