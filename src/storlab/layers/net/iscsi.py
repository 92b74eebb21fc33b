"""Layer ``iscsi``: a disk of Open-iSCSI, see iscsid(8), iscsiadm(8) and RFC 7143.

One ``iscsid`` serves all sessions of a node: the first starts it, under the agent, and the last stops it. It and
``iscsiadm`` have mounts of their own, so that nothing of the machine's own configuration is read or changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from storlab.base.errors import CommandFailed, TrialError
from storlab.layers.base import LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.queue import put, sysfs
from storlab.layers.net.configfs import attributes
from storlab.layers.net.initiator import LOOK, UNTIL_THERE, InitiatorLayer, complete, host_word
from storlab.layers.resources import Disk, Export
from storlab.layers.server.running import ServerLog, stop
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit, Node, Process
from storlab.nodes.undo import IscsiName, RunName, undo

# Several disks of the kernel's that are one at the server, joined by device mapper (drivers/md/dm-mpath.c of Linux).
#
# Requests go to them in turn. One whose path fails is left out from then on, and with none left they fail: nobody
# queues them, and no daemon tries again.

_MODULES = ("dm_multipath", "dm_round_robin")
NEEDS = mapper.needs(*_MODULES)


async def joined(disks: Sequence[str], context: LayerContext) -> str:
    sectors = await mapper.sectors_of(context.node, disks[0])
    paths = " ".join([f"/dev/{disk} 1" for disk in disks])
    table = f"0 {sectors} multipath 0 0 1 1 round-robin 0 {len(disks)} 1 {paths}"  # no features, one group, 1 argument
    return await mapper.create(context, f"storlab-{context.run}-{context.slot}", table, *_MODULES)


_LOCK = "iscsi"
_PATIENCE = 5.0  # s, for iscsid to end
# Without udev nobody loads sd_mod when a disk appears, and without it there is a session and no disk.
_ISCSI_MODULES = ("iscsi_tcp", "sd_mod")
# Its configuration, its records and its locks are in memory, and only these commands see them.
_PRIVATE = r"""
set -eu
mkdir -p /run/lock
mount -t tmpfs none /run/lock && mkdir /run/lock/iscsi
mount -t tmpfs none /etc/iscsi
echo "InitiatorName=$1" > /etc/iscsi/initiatorname.iscsi
echo 'iscsid.safe_logout = No' > /etc/iscsi/iscsid.conf
"""
_DAEMON = _PRIVATE + "exec iscsid --foreground --no-pid-file"
# A new record has what the configuration says at that time.
_LOGIN = r"""
set -eu
target=$1 portal=$2; shift 2
echo 'iscsid.safe_logout = No' > /etc/iscsi/iscsid.conf
while [ $# -gt 0 ]; do echo "$1 = $2"; shift 2; done >> /etc/iscsi/iscsid.conf
tries=0  # iscsid may just have begun
until iscsiadm -m node -T "$target" -p "$portal" -o new > /dev/null; do
    tries=$((tries + 1)); [ "$tries" -lt 20 ] || exit 1
    sleep 0.2
done
tries=0
until said=$(iscsiadm -m node -T "$target" -p "$portal" --login 2>&1); do
    case $said in *"not running"* | *"connect to iscsid"*) ;; *) printf '%s\n' "$said" >&2; exit 1 ;; esac
    tries=$((tries + 1)); [ "$tries" -lt 40 ] || { printf '%s\n' "$said" >&2; exit 1; }
    sleep 0.2
done
"""
_LOGOUT = 'for each; do iscsiadm -m session -r "$each" --logout >&2; done'
_CLASS = "/sys/class/iscsi_session"
_SESSION = "/../../iscsi_session/"
_FACTS = (
    "state", "recovery_tmo", "initiatorname", "first_burst_len", "max_burst_len", "immediate_data", "initial_r2t",
)  # fmt: skip


@undo("iscsi.logout")
async def _logout(node: Node, target: IscsiName, initiator: IscsiName, daemon: RunName) -> str | None:
    async with node.lock(_LOCK):
        before = await _sessions(node)
        mine = [session for session, served in before.items() if served == target]
        said = ""
        if mine:
            # An outage makes the session wait for its recovery; a second is enough once it is to be given up.
            recovery = (steps.write(f"{_CLASS}/{session}/recovery_tmo", "1\n") for session in mine)
            await node.carry_out(*recovery, go_on=True)
            numbers = [session.removeprefix("session") for session in mine]
            ended = await node.run(_beside_daemon(node, _LOGOUT, daemon, initiator, *numbers), check=False)
            said = ended.stderr.decode(errors="replace").strip() or ended.describe()
        did = f"logged out of {target}" if mine else None
        if len(mine) == len(before):  # there are no others, so nobody needs the daemon
            end = {"program": "iscsid", "folders": [], "signal": "SIGTERM", "patience": _PATIENCE}
            stopped = await stop(node, name=daemon, **end)
            did = did or stopped
        if target in (await _sessions(node)).values():
            raise TrialError(f"node {node.name}: the session of {target} does not end: {said}")
        return did


async def _sessions(node: Node) -> dict[str, str]:
    (listed,) = await node.carry_out(steps.names(_CLASS), go_on=True)
    targets = await node.texts(*(f"{_CLASS}/{session}/targetname" for session in listed.entries))
    return {session: target for session, target in zip(listed.entries, targets, strict=True) if target is not None}


async def _disks(node: Node, target: str) -> list[str]:
    found: list[str] = []
    for session in [session for session, served in (await _sessions(node)).items() if served == target]:
        (host,) = await node.carry_out(steps.names(f"{_CLASS}/{session}/device"), go_on=True)
        groups = [f"{_CLASS}/{session}/device/{name}" for name in host.entries if name.startswith("target")]
        listed = await node.carry_out(*map(steps.names, groups), go_on=True)
        units = [f"{at}/{name}/block" for at, each in zip(groups, listed, strict=True) for name in each.entries]
        found += [disk for each in await node.carry_out(*map(steps.names, units), go_on=True) for disk in each.entries]
    return sorted(found)


def _beside_daemon(node: Node, script: str, daemon: str, initiator: str, *arguments: str) -> list[str]:
    """A script that sees the configuration, the records and the locks of the daemon; its own, where that is gone."""
    process = node.named.get(daemon)
    if process is None or process.pid is None or process.ended is not None:
        script = f"{_PRIVATE}\nshift\n{script}"
        return _private(script, initiator, *arguments)
    return ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt", "--", "sh", "-c", script, "iscsi", *arguments]


def _private(script: str, initiator: str, *arguments: str) -> list[str]:
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "iscsi", initiator, *arguments]


class IscsiLayer(InitiatorLayer):
    """A disk of Open-iSCSI. A session has one connection: `queues` are sessions, whose disks device mapper joins."""

    layer: Literal["iscsi"] = "iscsi"

    protocol: ClassVar = "iscsi"
    undoes: ClassVar = (_logout, stop, mapper.remove)

    def needs(self) -> Needs:
        programs = ("iscsid", "iscsiadm", "modprobe", "unshare", "nsenter")
        needs = super().needs() | Needs(programs=programs, modules=_ISCSI_MODULES)
        return needs | NEEDS if self.queues > 1 else needs

    async def connect(self, below: Export, context: LayerContext) -> str:
        node, initiator = context.node, f"iqn.2026-01.local.storlab:{host_word(context)}"
        portal = f"{below.server['host']}:{below.server['port']}"
        daemon = f"storlab-{context.run}-iscsid"
        await context.register_undo("iscsi.logout", target=below.export, initiator=initiator, daemon=daemon)
        await load_modules(node, *_ISCSI_MODULES)
        async with node.lock(_LOCK):
            await self._daemon(daemon, initiator, context)
            options = [word for item in self._options().items() for word in item]
            try:
                await node.run(_beside_daemon(node, _LOGIN, daemon, initiator, below.export, portal, *options))
            except CommandFailed as error:
                raise TrialError(f"node {node.name}: cannot log in to {below.export} at {portal}", str(error)) from None
        for _ in range(int(UNTIL_THERE / LOOK)):
            disks = await _disks(node, below.export)
            if len(disks) == self.queues:
                return disks[0] if self.queues == 1 else await self._joined(disks, context)
            await asyncio.sleep(LOOK)
        raise TrialError(f"node {node.name}: logged in to {below.export}, and no disk appeared: is sd_mod loaded?")

    async def _joined(self, disks: Sequence[str], context: LayerContext) -> str:
        """One disk of all. What holds for it, holds for each: none passes on what is larger than its own requests."""
        for disk in disks:
            await complete(context.node, disk)
            most = int(await context.node.read_text(f"{sysfs(disk)}/queue/max_hw_sectors_kb"))
            own = {"queue/max_sectors_kb": str(min(self.max_sectors // 1024, most)), **self.timeouts()}
            await put(context.node, sysfs(disk), own)
        return await joined(disks, context)

    async def _daemon(self, name: str, initiator: str, context: LayerContext) -> None:
        """Start ``iscsid`` unless this run has one on this node."""
        known = context.node.named.get(name)
        if known is not None and known.ended is None and known.lost is None:
            return
        log = ServerLog(context.record("iscsid.log"))
        process = await context.node.start(_private(_DAEMON, initiator), name=name, on_output=log.take)
        await _until_it_is(process, "iscsid", context.node)

        def ended(how: Exit | None) -> None:
            log.close()
            if how is not None and how.stopped_by is None and context.node.named.get(name) is process:
                reason = replace(how, argv=("iscsid",)).describe()
                context.notify_lost(f"node {context.node.name}: {reason}", log.tail)

        process.when_ended(ended)

    def _options(self) -> dict[str, str]:
        """A silent server is noticed by pings, and what waits for it fails once its session was not recovered."""
        ping = max(round(self.give_up / 4), 1)
        return {
            "node.session.timeo.replacement_timeout": str(max(round(self.give_up / 2), 1)),
            "node.conn[0].timeo.noop_out_interval": str(ping),
            "node.conn[0].timeo.noop_out_timeout": str(ping),
            "node.conn[0].timeo.login_timeout": str(max(round(self.give_up), 1)),
            "node.conn[0].timeo.logout_timeout": "2",
            "node.session.err_timeo.abort_timeout": "2",
            "node.session.err_timeo.lu_reset_timeout": "2",
            "node.session.err_timeo.tgt_reset_timeout": "2",
            "node.session.cmds_max": str(1 << max(self.queue_depth + 16, 128).bit_length()),
            "node.session.queue_depth": str(self.queue_depth),
            "node.session.nr_sessions": str(self.queues),
        }

    def timeouts(self) -> dict[str, str]:
        return {"device/timeout": str(max(round(self.give_up), 1)), "device/eh_timeout": "2"}

    async def session_facts(self, disk: str, context: LayerContext) -> dict[str, Any]:
        sessions = await _sessions_of(context.node, disk)
        device = sessions[0].partition(_SESSION)[0]
        depth = await context.node.read_text(f"{device}/queue_depth")
        session = await attributes(context.node, sessions[0], _FACTS)
        return {"session": {**session, "queue_depth": int(depth)}, "sessions": len(sessions)}

    async def sever(self, resource: Disk, context: LayerContext) -> None:
        """Let what waits fail at once; the undoing logs out."""
        sessions = await _sessions_of(context.node, resource.name)
        await context.node.carry_out(*(steps.write(f"{each}/recovery_tmo", "1\n") for each in sessions), go_on=True)


async def _sessions_of(node: Node, disk: str) -> list[str]:
    """Folders of the sessions of a disk, or of all that device mapper made it of."""
    (joined,) = await node.carry_out(steps.names(f"{sysfs(disk)}/slaves"), go_on=True)
    disks = [sysfs(each) for each in (joined.entries or [disk])]
    listed = await node.carry_out(*(steps.names(f"{each}/device{_SESSION}") for each in disks), go_on=True)
    pairs = zip(disks, listed, strict=True)
    return [f"{each}/device{_SESSION}{name}" for each, done in pairs for name in done.entries]


async def _until_it_is(process: Process, program: str, node: Node) -> None:
    """Wait until a script has become the program that it executes at its end, or has ended."""
    for _ in range(int(UNTIL_THERE / LOOK)):
        (name,) = await node.texts(f"/proc/{process.pid}/comm")
        if name == program or process.ended is not None:
            return
        await asyncio.sleep(LOOK)
