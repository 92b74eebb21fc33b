"""A test that loses its guest is tried again in another, but not once it has lost two."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from storlab.run.suite.loss import GuestLost
from storlab.run.suite.part import Part
from storlab.run.suite.places.invariants import State
from storlab.suite.model import Attempt, Group, Role, Script

GROUP = Group("tests", (Script("/t/breaks", "root"), Script("/t/rest", "root")))


@dataclass
class Guests:
    """In which the first test loses every guest."""

    retries: int
    losses: dict[str, int] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    def part(self, tests: tuple[Script, ...]) -> Part:
        terms: Any = SimpleNamespace(
            retries=self.retries, scale=1.0, adapter=None, record=SimpleNamespace(folder=None, printed=None),
            place=SimpleNamespace(session=None), stops=False,
        )  # fmt: skip
        guest: Any = SimpleNamespace(state=State(), name="guest-1")
        part = Part(terms, guest, Group("tests", tests), self.losses)

        async def run(script: Script, role: Role, number: int = 1, below: str = "") -> Attempt:
            self.tried.append(script.path)
            raise GuestLost("gone")

        part._run = run  # type: ignore[method-assign]
        return part

    def lose(self, tests: tuple[Script, ...]) -> tuple[Script, ...]:
        part = self.part(tests)
        with pytest.raises(GuestLost):
            asyncio.run(part.run())
        return part.left


@pytest.mark.parametrize(("retries", "guests"), [(0, 1), (1, 2), (5, 2)])
def test_a_test_that_lost_two_guests_is_not_tried_again(retries: int, guests: int) -> None:
    lab = Guests(retries)
    left = GROUP.tests
    while left == GROUP.tests:
        left = lab.lose(left)
    assert lab.tried == ["/t/breaks"] * guests
    assert [test.path for test in left] == ["/t/rest"]
