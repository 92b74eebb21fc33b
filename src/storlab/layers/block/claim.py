"""Claims: a device is used by one run at a time, whatever either calls it, and whoever on the machine runs them.

A run that uses a device has a process on the device's machine that holds a lock, see flock(1), for as long as the run
lasts, however that ends. A disk has the whole lock of its file; a partition shares that of its disk, and has its own.
"""

from __future__ import annotations

import asyncio

from storlab.errors import NodeError, SafetyError
from storlab.layers.block.identity import DeviceIdentity
from storlab.nodes.node import Node, Process

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
