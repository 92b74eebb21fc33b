"""Which block device it is: not the name by which it was found, which may lead to another one by the next moment.

The kernel's number says which device a name leads to now; ``diskseq`` (Documentation/ABI/stable/sysfs-block) says
whether what has that number is still the same disk; serial number, WWN and the like say so also after the next boot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from storlab.base.amounts import size_text
from storlab.base.errors import SafetyError, StorlabError, UserError
from storlab.base.record import Count

if TYPE_CHECKING:
    from storlab.nodes.node import Node

_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,10}:[0-9]{1,10}$")]

# Each line is a key and its value. A partition has the marks of the disk that it is on, and says where it starts.
_IDENTIFY = r"""
export LC_ALL=C
line() {
    value=
    [ ! -r "$2" ] || IFS= read -r value <"$2" 2>/dev/null
    [ -z "$value" ] || printf '%s %s\n' "$1" "$value"
}
[ -b "$1" ] || exit 3
number=$(stat --dereference --format='0x%t 0x%T' -- "$1") || exit 3
number=$((${number% *})):$((${number#* }))
folder=$(readlink --canonicalize-existing "/sys/dev/block/$number") || exit 4
whole=$folder
[ ! -e "$folder/partition" ] || whole=${folder%/*}
name=$(sed -n 's/^DEVNAME=//p' "$folder/uevent")
path=$(readlink --canonicalize-existing -- "$1")
[ "$(stat --format='%t:%T' -- "/dev/$name" 2>/dev/null)" != "$(stat --format='%t:%T' -- "$path")" ] || path=/dev/$name
printf 'path %s\nnumber %s\nname %s\n' "$path" "$number" "${folder##*/}"
line whole "$whole/dev"
line sectors "$folder/size"
line start "$folder/start"
line read_only "$folder/ro"
line diskseq "$whole/diskseq"
for mark in serial device/serial wwid device/wwid dm/uuid md/uuid loop/backing_file; do line mark "$whole/$mark"; done
sed -n 's/^E:\(ID_SERIAL\|ID_WWN\)=/mark /p' "/run/udev/data/b$(cat "$whole/dev")" 2>/dev/null
true
"""


class DeviceIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """A block device. ``number`` is its major and minor one, ``whole`` that of the whole disk.

    ``path`` is the kernel's own name of it, ``size`` and ``start`` (of a partition) are bytes. ``marks``: all that
    distinguishes it in any boot: serial number, WWN, UUID of a mapping, the file behind a loop device. ``sequence``:
    a number that no other disk gets in this ``boot``; ``None`` before Linux 5.15.
    """

    path: _Text
    number: _Number
    whole: _Number
    size: Count
    start: Count = 0
    marks: tuple[_Text, ...] = ()
    sequence: Count | None = None
    boot: _Text = ""
    name: _Text = ""  # in sysfs
    read_only: bool = False

    @property
    def fingerprint(self) -> str:
        """What tells it from others in any boot, in short: its marks, or its number where it has none."""
        traits = [str(self.size), str(self.start), *(self.marks or (self.number,))]
        digest = hashlib.sha256("\0".join(traits).encode(errors="replace")).hexdigest()[:32]
        return f"{'marked' if self.marks else 'numbered'}-{digest}"

    def is_same(self, other: DeviceIdentity) -> bool:
        """Whether it is the same device, in whatever boot.

        One without marks is taken for what has the same number and size, unless the kernel knows better.
        """
        if (self.size, self.start, self.marks) != (other.size, other.start, other.marks):
            return False
        if self.boot == other.boot and not self.marks:
            return (self.number, self.sequence) == (other.number, other.sequence)
        return bool(self.marks) or self.number == other.number

    def is_unchanged(self, other: DeviceIdentity) -> bool:
        """Whether nothing took its place since: also not the same disk, removed and attached again."""
        same = (self.number, self.sequence, self.boot) == (other.number, other.sequence, other.boot)
        return same and self.is_same(other)

    def overlaps(self, other: DeviceIdentity) -> bool:
        """Whether what is written to one of these devices of one machine may be seen on the other."""
        same_disk = self.whole == other.whole
        return self.number == other.number or (same_disk and self.whole in (self.number, other.number))

    def __str__(self) -> str:
        marks = f", {', '.join(self.marks)}" if self.marks else ""
        return f"{self.path} ({self.number}, {size_text(self.size)}{marks})"


async def identify(node: Node, path: str) -> DeviceIdentity:
    """The device that a path leads to now. Raises ``UserError`` where there is none."""
    found = await node.run(["sh", "-c", _IDENTIFY, "identify", path], check=False)
    if found.code == 4:
        raise UserError(f"node {node.name}: {path} is a device node, but the kernel has no such device", ("path",))
    if not found.ok:
        raise UserError(f"node {node.name}: there is no block device {path}", ("path",))
    fields: dict[str, str] = {}
    marks: dict[str, None] = {}
    for line in found.stdout.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        if key == "mark" and value.strip():
            marks[value.strip()] = None
        else:
            fields[key] = value
    return DeviceIdentity(
        path=fields["path"],
        number=fields["number"],
        whole=fields.get("whole", fields["number"]),
        size=int(fields.get("sectors", "0")) * 512,  # whatever its own sectors are, see sysfs-block
        start=int(fields.get("start", "0")) * 512,
        marks=tuple(marks),
        sequence=int(fields["diskseq"]) if "diskseq" in fields else None,
        boot=node.machine,
        name=fields["name"],
        read_only=fields.get("read_only") == "1",
    )


async def refuse_another(node: Node, path: str, device: DeviceIdentity | None) -> None:
    """Raise ``SafetyError`` where a device of the user's is no longer what the run found it to be.

    To be called right before anything that destroys what is on it. ``device``: ``None`` where it is none of a user's.
    """
    if device is None:
        return
    try:
        now = await identify(node, path)
    except UserError as error:
        raise SafetyError(f"{error}: the run uses {device}, which is gone") from None
    if not device.is_unchanged(now):
        raise SafetyError(
            f"node {node.name}: the run uses {device}, but there is another device in its place now: {now}. "
            "Nothing more is written to it"
        )


# Where a signature of Storlab's own is by now that it made on a device of the user's.
#
# Kernels give other names at each boot: what was ``/dev/sdb`` may be ``/dev/sdc``, and another disk ``/dev/sdb``.

Fingerprint = Annotated[str, Meta(pattern=r"^((marked|numbered)-[0-9a-f]{32})?$")]
"""That of the device when the signature was announced; empty in journals from before it was noted."""

_WIPEFS = ("wipefs", "--no-act", "--json")
TypesOf = Callable[[bytes], list[str]]
"""Which types of signatures, in what ``wipefs --json`` or another program prints, are Storlab's own alone."""


async def own_signatures(
    node: Node, device: str, was: str, token: str, types_of: TypesOf, read: Sequence[str] = _WIPEFS
) -> tuple[str, list[str]] | None:
    """The device that has the signature now, and its types there; ``None`` where it was not made, or is wiped.

    ``token`` is how blkid(8) finds it, by tag and value; ``read``, before a device's path, prints what is on it.
    Raises ``StorlabError`` where the device is not found that had, or was about to get, the signature.
    """
    here = types_of(await _listing(node, device, read))
    now = await _fingerprint(node, device)
    if now is not None and now == was:
        return (device, here) if here else None
    others = [path for path in await devices_with(node, token) if path != device]
    listed = {path: types_of(await _listing(node, path, read)) for path in others}
    elsewhere = {path: types for path, types in listed.items() if types}
    same = [path for path in elsewhere if await _fingerprint(node, path) == was]
    if same:
        return same[0], elsewhere[same[0]]
    if here:
        return device, here
    if len(elsewhere) == 1 and not was.startswith("marked"):
        return next(iter(elsewhere.items()))
    if now is not None and not was and not elsewhere:
        return None  # that it is another device can't be told
    state = f"{device} is another device now" if now is not None else f"there is no {device} now"
    seen = f", and {', '.join(elsewhere)} may be a copy of it" if elsewhere else ""
    raise StorlabError(
        f"node {node.name}: {state}{seen}: Storlab's own signature ({token}) is still on the device that had that "
        "name, unless it is wiped. Attach that again, or wipe it by hand"
    )


async def _listing(node: Node, device: str, read: Sequence[str]) -> bytes:
    from storlab.nodes.privileges import on_device  # with nodes and asyncio, which who reads a run need not load

    return (await on_device(node, device).run([*read, device], check=False)).stdout


async def _fingerprint(node: Node, device: str) -> str | None:
    try:
        return (await identify(node, device)).fingerprint
    except UserError:
        return None


async def devices_with(node: Node, token: str) -> list[str]:
    """All devices that blkid(8) finds by it; its cache may name those of the boot before."""
    found = await node.run(
        ["blkid", "--cache-file", "/dev/null", "--match-token", token, "--output", "device"], check=False
    )
    return found.stdout.decode(errors="replace").split("\n")[:-1]
