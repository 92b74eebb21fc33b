"""The agent: whether it is built, runs, and is static."""

from __future__ import annotations

from storlab.doctor.check import Check, missing, ok
from storlab.doctor.machine import Machine
from storlab.errors import MissingTool
from storlab.nodes.agent_binary import agent_path

GROUP = "Machine"


def checks(machine: Machine) -> list[Check]:
    """Run it for its version."""
    try:
        path = agent_path()
    except MissingTool:
        return [missing("agent", GROUP, "not built", "make agent")]
    ended = machine.run([str(path), "--version"])
    if ended.status != 0:
        return [missing("agent", GROUP, f"{path} doesn't run: {ended.first_line}", "make agent")]
    return [ok("agent", GROUP, ended.first_line.removeprefix("storlab-agent "))]
