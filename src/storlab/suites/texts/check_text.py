"""How checkouts of xfstests and of blktests say which tests are in which groups, as of 2024."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

TEST = re.compile(r"[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64}")
_BEGIN = re.compile(r"^_begin_fstest +(?P<groups>[^#\n]+)", re.MULTILINE)


def read_group_list(text: str) -> dict[str, tuple[str, ...]]:
    """Test → its groups, by a ``group.list`` or ``group`` file of xfstests."""
    found = {}
    for line in text.splitlines():
        name, *groups = line.partition("#")[0].split() or [""]
        if name and TEST.fullmatch(f"x/{name}"):
            found[name] = tuple(groups)
    return found


def groups_in(text: str) -> tuple[str, ...] | None:
    """The groups that a test itself names; ``None`` where it names none. blktests knows ``quick`` only."""
    if (found := _BEGIN.search(text)) is not None:
        return tuple(found["groups"].split())
    if re.search(r"^(?:DESCRIPTION|QUICK|TIMED|CAN_BE_ZONED)=", text, re.MULTILINE):
        return ("quick",) if re.search(r"^QUICK=1", text, re.MULTILINE) else ()
    return None


def read_excludes(text: str) -> list[str]:
    return [line.split()[0] for line in (each.partition("#")[0] for each in text.splitlines()) if line.strip()]


def chosen(
    tests: Mapping[str, Collection[str]], named: Collection[str], groups: Collection[str], without: Collection[str]
) -> list[str]:
    """Tests by name, or in one of these groups, and in none of those ``without``; all where nothing is named.

    A directory is a group of its own, as for blktests.
    """

    def kinds(test: str) -> set[str]:
        return {*tests[test], test.partition("/")[0], f"{test.partition('/')[0]}/all"}

    def wanted(test: str) -> bool:
        return (not named and not groups) or test in named or bool(kinds(test) & set(groups))

    return [test for test in sorted(tests) if wanted(test) and not kinds(test) & set(without)]
