"""Claims: a device is used by one run at a time, whatever either calls it, and whoever on the machine runs them.

A run that uses a device has a process on the device's machine that holds a lock, see flock(1), for as long as the run
lasts, however that ends. A disk has the whole lock of its file; a partition shares that of its disk, and has its own.
"""

from __future__ import annotations

import asyncio

from storlab.base.errors import NodeError, SafetyError, StorlabError, TrialError
from storlab.layers.block.identity import DeviceIdentity
from storlab.layers.fs.mount import parse_mountinfo
from storlab.nodes.node import Node, Process
from storlab.nodes.privileges import on_device

_PATIENCE = 10.0  # s

# Only root can put anything into /run; that nobody else can write to the folders is looked at all the same. Nor can
# others read in that of the claims: to lock a file, reading it is enough, see flock(2).
_HOLD = r"""
umask 077
for each in 755:/run/storlab 700:/run/storlab/claims; do
    folder=${each#*:}
    mkdir --mode="${each%%:*}" "$folder" 2>/dev/null
    [ "$(stat --format='%F %u %a' -- "$folder")" = "directory $(id -u) ${each%%:*}" ] ||
        { echo "no $folder is not a folder of this user's with the mode ${each%%:*}"; exit 1; }
done
cd /run/storlab/claims || exit 1
taken() { echo "taken $(head --bytes=100 -- "$1" | head --lines=1)"; exit 1; }
exec 8>>"$2" || exit 1
if [ "$1" = "$2" ]; then
    flock --nonblock --exclusive 8 || taken "$2"
else
    flock --nonblock --shared 8 || taken "$2"
    exec 9>>"$1" || exit 1
    flock --nonblock --exclusive 9 || taken "$1"
    printf '%s\n' "$3" >"$1"
fi
printf '%s\n' "$3" >"$2"
echo held
exec sleep infinity
"""


class Claims:
    """The devices that one run has claimed: each once, until the run ends."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._held: dict[tuple[str, str], Process] = {}
        self._lock = asyncio.Lock()

    async def claim(self, node: Node, device: DeviceIdentity) -> None:
        """Keep other runs from using a device, or one that overlaps it. Raises ``SafetyError`` where one does so."""
        key = node.machine, device.number
        async with self._lock:
            known = self._held.get(key)
            if known is None or known.ended is not None or known.lost is not None:
                self._held[key] = await self._hold(node, device)

    async def release(self) -> None:
        """Let others use all of them again. The end of the nodes does the same."""
        async with self._lock:
            for holder in self._held.values():
                await holder.end()
            self._held.clear()

    async def _hold(self, node: Node, device: DeviceIdentity) -> Process:
        holder = await node.start(["sh", "-c", _HOLD, "hold", device.number, device.whole, self._run])
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = (await holder.first_line() or b"").decode(errors="replace")
        except TimeoutError:
            await holder.end()
            raise NodeError(f"node {node.name}: no answer within {_PATIENCE:g} s to a claim on {device.path}") from None
        word, _, what = answer.partition(" ")
        if word == "held":
            return holder
        ended = await holder.wait()
        if word == "taken":
            who = f"another run of Storlab ({what})" if what else "another run of Storlab"
            raise SafetyError(
                f"node {node.name}: {device.path} is in use by {who}, or a device that overlaps it is: wait for its "
                "end. If it was killed, `storlab clean` ends what is left of it"
            )
        reason = what or ended.stderr.decode(errors="replace").strip() or ended.describe()
        raise NodeError(f"node {node.name}: {device.path} can't be claimed: {reason}")


# Who uses a block device, whatever they call it: everything is compared by the kernel's numbers.
#
# Looked at are mounts, swap, loop devices and open files, in all namespaces that this node's ``/proc`` shows, and
# what holds the device in sysfs. At last the kernel decides, which knows better than any of these who holds it
# exclusively.

_PASSING = ("systemd-udevd", "(udev-worker)")  # they look at every device that was written to, and let go again
_USERS_PATIENCE = 60.0  # s; a machine with 10,000 open files takes a tenth of one

# Each line is a kind and what was found. ``$1`` is the device's number. One process each for all processes, however
# many there are. What a descriptor is of is asked for in a way that never waits for a server of a network file system.
_LOOK = r"""
export LC_ALL=C
folder=$(readlink --canonicalize-existing "/sys/dev/block/$1") || exit 4
whole=$folder
[ ! -e "$folder/partition" ] || whole=${folder%/*}
family=" $(cat "$whole/dev" "$folder/dev" "$folder"/*/dev 2>/dev/null | sort --unique | tr '\n' ' ')"
hex=" "
for each in $family; do hex="$hex$(printf '%x:%x' "${each%:*}" "${each#*:}") "; done
member() { case $hex in *" $1 "*) true ;; *) false ;; esac; }
number_of() { stat --dereference --cached=always --format='%t:%T' -- "$1" 2>/dev/null; }

for each in $family; do
    for holder in "/sys/dev/block/$each/holders/"*; do
        [ ! -e "$holder" ] || echo "holder ${holder##*/}"
    done
done

cd /proc || exit 1
set --
for each in $family; do set -- "$@" -e " $each "; done
grep --no-filename --fixed-strings --no-messages "$@" [0-9]*/mountinfo | sort --unique | sed 's/^/mount /'

while read -r path kind rest; do
    case $path in /*) member "$(number_of "$path")" && echo "swap $path" ;; esac
done <swaps

# A loop device names the file behind it as whoever made it saw that: in one of these namespaces.
roots=$(find [0-9]*/ns/mnt -maxdepth 0 -printf '%l %h\n' 2>/dev/null |
    sort --unique --key=1,1 | sed 's/.* //; s/.ns$//')
for back in /sys/block/*/loop/backing_file; do
    [ -r "$back" ] || continue
    IFS= read -r path <"$back"
    case $path in /*) ;; *) continue ;; esac
    loop=${back#/sys/block/}
    for root in "" $roots; do
        [ -z "$root" ] || root=/proc/$root/root
        if [ -b "$root$path" ] && member "$(number_of "$root$path")"; then
            echo "loop /dev/${loop%%/*}"
            break
        fi
    done
done

printf '%s\0' [0-9]*/fd |
    xargs --null sh -c 'exec find "$@" -mindepth 1 -maxdepth 1 -lname "/*" -print0 2>/dev/null' sh |
    xargs --null --no-run-if-empty stat --dereference --cached=always --format='%F/%t:%T/%n' -- 2>/dev/null |
    grep '^block special' | while IFS=/ read -r kind number pid rest; do
        member "$number" && IFS= read -r name <"$pid/comm" && echo "open $pid $name"
    done | sort --unique
true
"""


async def user_of(node: Node, device: DeviceIdentity) -> str | None:
    """Who uses the device, a partition of it, or the disk that it is a partition of, in words; ``None``: nobody does.

    Raises ``SafetyError`` where that can't be found out.
    """
    try:
        found = await node.run(["sh", "-c", _LOOK, "look", device.number], timeout=_USERS_PATIENCE)
    except TrialError as error:
        raise SafetyError(f"node {node.name}: cannot find out who uses {device.path}: {error}") from None
    for line in found.stdout.decode(errors="replace").splitlines():
        kind, _, what = line.partition(" ")
        match kind:
            case "holder":
                return f"{device.path} is in use by {what}"
            case "mount":
                for mount in parse_mountinfo(what):
                    return f"{device.path} is mounted on {mount.path}"
            case "swap":
                return f"{device.path} is in use as swap"
            case "loop":
                return f"{device.path} is in use by {what}"
            case "open" if not what.endswith(_PASSING):
                pid, _, name = what.partition(" ")
                return f"{device.path} is open in process {pid} ({name})"
    return await _held(node, device.path)


async def _held(node: Node, path: str) -> str | None:
    """Let the kernel say it: whoever has claimed the device, or one that overlaps it, keeps others from an O_EXCL open.

    This also finds what nothing above can see, such as a mount in a namespace without processes, or Btrfs's members.
    """
    argv = ["wipefs", "--all", "--no-act", "--quiet", path]  # exclusively; no writes
    opened = await on_device(node, path).run(argv, check=False)
    if opened.ok:
        return None
    message = opened.stderr.decode(errors="replace").strip()
    if "resource busy" in message:
        return f"{path} is in use: something holds it, or a device that overlaps it, exclusively"
    return f"cannot open {path} ({message})"


async def stopped(node: Node, script: str, what: str, uuid: str) -> str | None:
    """What a shell script stopped by its UUID, in words; it prints "stopped" if it did, and fails for what is in use.

    Raises ``StorlabError`` for that.
    """
    ended = await node.run(["sh", "-c", script, "stop", uuid], check=False)
    if not ended.ok:
        raise StorlabError(f"node {node.name}: the {what} {uuid} is still in use, and was not stopped")
    return f"stopped the {what} {uuid}" if b"stopped" in ended.stdout else None
