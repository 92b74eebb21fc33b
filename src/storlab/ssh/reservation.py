"""Who has a machine for themselves: a file on it, which stays there until it is given back, also over a boot.

It is for people, as the lock of a running Storlab is for runs: somebody works on the machine for a day, boots kernels
there, or will measure tonight. Whoever can log in as root there can remove it; nobody else can make one.
"""

from __future__ import annotations

import getpass
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from storlab.base.errors import SshError, UserError
from storlab.base.text import one_line
from storlab.ssh.machine import Machine

FOLDER = "/var/lib/storlab"
FILE = f"{FOLDER}/reserved"
_MOST = 4096  # bytes, of what another machine says

# $1 folder, $2 file, $3 what it says. Made in one step (ln), so that of two who ask at once one gets it.
_TAKE = """
umask 022
mkdir -p "$1" && [ -O "$1" ] && [ ! -L "$1" ] && [ ! -L "$2" ] || { echo "no folder $1 of root's" >&2; exit 1; }
printf '%s\\n' "$3" >"$2.$$" && ln "$2.$$" "$2" 2>/dev/null; taken=$?
rm -f "$2.$$"
[ $taken = 0 ] && echo ours || { echo theirs; head -c 4096 "$2"; }
"""
_LOOK = '[ ! -f "$1" ] || head -c 4096 "$1"'
# $2 is what it must say, so that what somebody else has made since is left.
_GIVE_BACK = '[ "$(head -c 4096 "$1")" = "$2" ] && rm -f "$1"'

_Text = Annotated[str, Meta(max_length=512)]


class Reservation(Struct, frozen=True, forbid_unknown_fields=True):
    """``who`` is a user and a controller, ``since`` in UTC, ``why`` in words."""

    who: _Text
    since: _Text
    why: _Text = ""

    def __str__(self) -> str:
        why = f": {one_line(self.why)}" if self.why else ""
        return f"{one_line(self.who)} since {one_line(self.since)}{why}"


@dataclass(frozen=True)
class Taken:
    """Whether it is ours now; ``before``: it was, or the one who has it."""

    ours: bool
    before: Reservation | None = None


def own_name() -> str:
    return f"{getpass.getuser()}@{platform.node()}"


async def take(machine: Machine, why: str) -> Taken:
    """Reserve a machine, unless somebody has. Raises ``UserError`` where it can't be reserved."""
    mine = Reservation(own_name(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), why)
    try:
        said = await machine.script(_TAKE, FOLDER, FILE, msgspec.json.encode(mine).decode())
    except SshError as error:
        if machine.uid != 0:
            raise UserError(f"{machine.host}: only root can reserve it: log in as root, in ~/.ssh/config") from None
        raise UserError(f"{machine.host} can't be reserved: {error}") from None
    state, _, rest = said.decode(errors="replace").partition("\n")
    if state == "ours":
        return Taken(True)
    found = _read(rest)
    return Taken(found is not None and found.who == own_name(), found)


async def reservation_of(machine: Machine) -> Reservation | None:
    return _read((await machine.script(_LOOK, FILE)).decode(errors="replace"))


async def give_back(machine: Machine, *, also_of_others: bool = False) -> Reservation | None:
    """Let others use a machine again: the reservation that it had. Raises ``UserError`` where it is somebody else's."""
    written = (await machine.script(_LOOK, FILE)).decode(errors="replace")
    found = _read(written)
    if found is None:
        return None
    if found.who != own_name() and not also_of_others:
        raise UserError(f"{machine.host} is reserved by {found}: ask them, or write --force")
    await machine.script(_GIVE_BACK, FILE, written.removesuffix("\n"))
    return found


def refuse_reserved(host: str, found: Reservation | None) -> None:
    """Raise ``UserError`` where somebody else has a machine for themselves."""
    if found is not None and found.who != own_name():
        raise UserError(f"{host} is reserved by {found}: ask them, or wait (`storlab lab unlock --force` ends it)")


def _read(text: str) -> Reservation | None:
    """What the file says; one that is damaged is still a reservation."""
    if not text.strip():
        return None
    try:
        return msgspec.json.decode(text[:_MOST].encode(), type=Reservation)
    except msgspec.MsgspecError:
        return Reservation("somebody", "a time that can't be read", f"{FILE} is damaged")
