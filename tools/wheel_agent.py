"""Puts the agent into each wheel that hatchling builds, and names the wheel after the machine that the agent is for.

The agent is a static program, which needs a kernel and nothing else, so the wheel has the oldest tag that installers
know for its machine. Cargo builds the agent, unless ``STORLAB_WHEEL_AGENT`` names one that is built already. With
``STORLAB_WHEEL_MACHINE=aarch64`` it is one for another machine, where Rust's target and its linker are installed.

Editable installations have none: from a checkout, Storlab takes what ``make agent`` built.
"""

from __future__ import annotations

import os
import platform
import struct
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = {62: "x86_64", 183: "aarch64"}
"""By the number that an executable has for them: ``e_machine`` in elf(5)."""
PLACE = "storlab/bin/storlab-agent"

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT_TYPE = struct.Struct("<I")
_INTERPRETER = 3  # PT_INTERP: what a program has that is not static
_TAG = "py3-none-manylinux_2_17_{machine}"


class CannotBuild(Exception):
    """Why there is no agent for this wheel, and what to do."""


class AgentHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the agent to what is packed."""
        if version == "editable":
            return
        try:
            agent = find_agent(Path(self.root))
            machine = machine_of(agent)
        except CannotBuild as error:
            self.app.abort(f"storlab: {error}")
        build_data["pure_python"] = False
        build_data["tag"] = _TAG.format(machine=machine)
        build_data["force_include"][str(agent)] = PLACE


def find_agent(root: Path) -> Path:
    """The agent that the environment names, or the one that cargo builds."""
    if chosen := os.environ.get("STORLAB_WHEEL_AGENT"):
        return Path(chosen).resolve()
    return _build(root / "agent", os.environ.get("STORLAB_WHEEL_MACHINE") or platform.machine())


def _build(sources: Path, machine: str) -> Path:
    if machine not in MACHINES.values():
        raise CannotBuild(f"there is no agent for {machine}: Storlab runs on {' and '.join(MACHINES.values())}")
    target = f"{machine}-unknown-linux-gnu"
    # A fresh rustup is not on PATH before the next login.
    environment = os.environ | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{Path.home() / '.cargo' / 'bin'}"}
    argv = ["cargo", "build", "--release", "--locked", "--target", target]
    try:
        subprocess.run(argv, cwd=sources, env=environment, check=True)
    except FileNotFoundError:
        raise CannotBuild(
            "the agent is built with Rust, and cargo is not on PATH: install Rust as https://rustup.rs says, or name "
            "an agent that is built already in STORLAB_WHEEL_AGENT"
        ) from None
    except subprocess.CalledProcessError as error:
        raise CannotBuild(f"the agent could not be built: `{' '.join(argv)}` ended with {error.returncode}") from None
    return Path(os.environ.get("CARGO_TARGET_DIR", sources / "target")) / target / "release" / "storlab-agent"


def machine_of(agent: Path) -> str:
    """What machine a static executable is for. Raises ``CannotBuild`` where it is no such thing."""
    try:
        content = agent.read_bytes()
    except OSError as error:
        raise CannotBuild(f"cannot read {agent}: {error.strerror}") from None
    if len(content) < _HEADER.size or not content.startswith(_IDENTITY):
        raise CannotBuild(f"{agent} is not an executable for Linux on {' or '.join(MACHINES.values())}")
    header = _HEADER.unpack_from(content)
    machine = MACHINES.get(header[2])
    if machine is None:
        raise CannotBuild(f"{agent} is for another machine than {' or '.join(MACHINES.values())}")
    table, size, count = header[5], header[9], header[10]
    if len(content) < table + size * count:
        raise CannotBuild(f"{agent} is cut off")
    kinds = {_SEGMENT_TYPE.unpack_from(content, table + size * each)[0] for each in range(count)}
    if _INTERPRETER in kinds:
        raise CannotBuild(f"{agent} is not static: it would need this machine's C library on every node")
    return machine
