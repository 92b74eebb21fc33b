"""Which command runs a test: it follows from what the test needs and what it was measured to cost."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

CHECK_LIMIT = 0.1  # CPU s of a test of `make check`
MACHINE_LIMIT = 3.0  # CPU s of a test of `make test`
TOUR = "tests/tour/"

_MORE_THAN_A_PROGRAM = frozenset({"root", "guests", "zfs", "kvm", "browser", "mysql", "virtiofsd", "packages", "slurm"})
_NOT_ON_THIS_MACHINE = frozenset({"guests", "zfs", "kvm", "browser", "packages", "slurm"})


class Tier(StrEnum):
    """Where a test runs: in `make check` and `make test`, in `make test`, in `make test-guests`."""

    CHECK = "check"
    TEST = "test"
    GUESTS = "guests"


def tier_of(nodeid: str, needs: Collection[str], cost: float) -> Tier:
    """The tier of one test. ``cost``: CPU s, with those of the fixtures that it shares; 0 where nobody measured it."""
    if nodeid.startswith(TOUR):
        return Tier.TEST
    if cost > MACHINE_LIMIT or not _NOT_ON_THIS_MACHINE.isdisjoint(needs):
        return Tier.GUESTS
    if cost > CHECK_LIMIT or not _MORE_THAN_A_PROGRAM.isdisjoint(needs):
        return Tier.TEST
    return Tier.CHECK


def runs_in(asked: str, tier: Tier) -> bool:
    """Whether a command runs tests of a tier. ``asked``: one of ``ASKED``."""
    return tier in ASKED[asked]


ASKED: dict[str, frozenset[Tier]] = {
    "check": frozenset({Tier.CHECK}),
    "test": frozenset({Tier.CHECK, Tier.TEST}),
    "guests": frozenset({Tier.GUESTS}),
    "all": frozenset(Tier),
}
"""What ``--tier`` may be → the tiers that run."""
