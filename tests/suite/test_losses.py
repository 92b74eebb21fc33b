"""Guests that are lost, or can't be prepared: what is tried again in another, how often, and what has a result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from storlab.errors import CommandFailed
from storlab.run.suite.loss import GuestLost
from storlab.run.suite.part import Part
from storlab.run.suite.places.invariants import State
from storlab.run.suite.queue import Queue
from storlab.run.suite.shard import Shard, run_all
from storlab.suite.model import Attempt, Group, Outcome, Role, Script

GROUP = Group("tests", (Script("/t/breaks", "root"), Script("/t/rest", "root")))


@dataclass
class Guests:
    """In which the first test loses every guest."""

    retries: int
    losses: dict[str, int] = field(default_factory=dict)
    tried: list[tuple[str, int]] = field(default_factory=list)
    written: list[Attempt] = field(default_factory=list)

    def part(self, group: Group) -> Part:
        terms: Any = SimpleNamespace(
            retries=self.retries, scale=1.0, adapter=SimpleNamespace(runner="tester"), record=SimpleNamespace(
                folder=None, printed=None, add=lambda attempt, runner: self.written.append(attempt),
            ),
            place=SimpleNamespace(session=None), stops=False,
        )  # fmt: skip
        guest: Any = SimpleNamespace(state=State(), name="guest-1")
        part = Part(terms, guest, group, self.losses)

        async def run(script: Script, role: Role, number: int = 1, below: str = "") -> Attempt:
            self.tried.append((script.path, number))
            raise GuestLost("gone")

        part._run = run  # type: ignore[method-assign]
        return part

    def lose(self, group: Group) -> tuple[Script, ...]:
        part = self.part(group)
        with pytest.raises(GuestLost):
            asyncio.run(part.run())
        return part.left


@pytest.mark.parametrize(("retries", "guests"), [(0, 1), (1, 2), (5, 2)])
def test_a_test_that_lost_two_guests_is_not_tried_again(retries: int, guests: int) -> None:
    lab = Guests(retries)
    left = GROUP.tests
    while left == GROUP.tests:
        left = lab.lose(Group("tests", left))
    assert lab.tried == [("/t/breaks", number) for number in range(1, guests + 1)]
    assert [test.path for test in left] == ["/t/rest"]


def test_the_only_test_of_a_group_whose_set_up_lost_two_guests_is_skipped() -> None:
    lab = Guests(0)
    group = Group("tests", GROUP.tests[:1], pre=Script("/t/setup", "root"))
    assert lab.lose(group) == group.tests
    assert lab.lose(group) == () and lab.losses == {"/t/setup": 2}
    assert [(attempt.path, attempt.outcome) for attempt in lab.written] == [("/t/breaks", Outcome.SKIP)]


def test_a_guest_in_which_a_command_failed_while_it_was_prepared_is_tried_again() -> None:
    tries: list[str] = []

    async def opened(place: object, name: str, notify: object) -> Any:
        tries.append(name)
        raise CommandFailed("udevadm settle ended with status 1")

    async def no_spare() -> None:
        return None

    terms: Any = SimpleNamespace(place=None, record=SimpleNamespace(opened=opened), stops=False)
    spare: Any = SimpleNamespace(take=no_spare)
    shard = Shard("guest-1", terms, Queue.of([GROUP]), lambda said: None, spare)
    assert asyncio.run(run_all([shard])) == [
        "guest-1: no guest could be had in 3 tries: udevadm settle ended with status 1"
    ]
    assert tries == ["guest-1"] * 3
