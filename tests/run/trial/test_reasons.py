"""Why a trial failed: what a node says of it that is short of memory, or that says what makes no sense."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest

from storlab.errors import CommandFailed, NodeLost
from storlab.run.setup.build import Built
from storlab.run.trial.reasons import out_of_memory

KILLED = b"1000.5 2000.0\n[  990.250000] Out of memory: Killed process 4711 (postgres), UID 0\n"


def built(run: mock.AsyncMock, *, pid: int = 1) -> Built:
    node = SimpleNamespace(name="vm", lost=None, run=run)
    program = SimpleNamespace(name="/usr/lib/postgresql/postgres", pid=pid)
    return cast(Built, SimpleNamespace(parts={"p": SimpleNamespace(programs=[program], node=node)}))


def said(stdout: bytes) -> mock.AsyncMock:
    return mock.AsyncMock(return_value=SimpleNamespace(stdout=stdout))


def test_the_server_that_the_kernel_has_just_killed_is_named() -> None:
    expected = "the kernel of vm was out of memory, and killed postgres (process 4711)"
    assert asyncio.run(out_of_memory(built(said(KILLED)))) == expected
    assert asyncio.run(out_of_memory(built(said(KILLED.replace(b"1000.5", b"2000.5"))))) == "", "long ago"


@pytest.mark.parametrize("stdout", [b"", b"\n\n", b"never\n" + KILLED.partition(b"\n")[2], b"\xff\x00"])
def test_nonsense_is_no_reason_and_no_error(stdout: bytes) -> None:
    assert asyncio.run(out_of_memory(built(said(stdout)))) == ""


@pytest.mark.parametrize("error", [CommandFailed("sh: Cannot allocate memory"), NodeLost("the guest is gone")])
def test_a_node_that_can_not_be_asked_leaves_the_trials_own_reason(error: Exception) -> None:
    assert asyncio.run(out_of_memory(built(mock.AsyncMock(side_effect=error)))) == ""
