"""The iSCSI target that is a program: tgtd(8) of the Linux SCSI target framework, told by tgtadm(8) what to serve.

One serves one disk, at a port of its own. Its first unit (LUN 0) is its controller, so the disk is unit 1. The socket
on which tgtadm reaches it is in a folder of its own (TGT_IPC_SOCKET), not in /var/run/tgtd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.base.errors import CommandFailed
from storlab.base.text import number_or_text
from storlab.base.units import Size
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.net.configfs import (
    KernelTarget,
    attributes,
    configure,
    mount_configfs,
    settings,
    small_number,
    target_name,
)
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import TAKEN, ServerContext, ServerLayer, network_address, to_what_it_serves
from storlab.layers.server.running import FileSays, is_taken
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Confinement, Node
from storlab.nodes.undo import IscsiName, RunName, undo

_TARGET, _UNIT = ["--lld", "iscsi", "--mode", "target", "--tid", "1"], ["--mode", "logicalunit", "--lun", "1"]
_SETTINGS = ("MaxBurstLength", "FirstBurstLength", "ImmediateData", "InitialR2T", "MaxRecvDataSegmentLength")


class Tgt(ServerLayer[File | Disk, Export]):
    """What ``iscsi-target`` sets up with ``implementation = "tgt"``; no study names it itself.

    ``export``: the target's name; ``settings``: by their names in RFC 7143.
    """

    layer: Literal["tgt"] = "tgt"
    export: str
    direct: bool
    discard: bool
    settings: dict[str, str]

    program: ClassVar = "tgtd"
    first_port: ClassVar = 3260
    start_patience: ClassVar = 30.0
    stop_patience: ClassVar = 10.0

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("tgtadm", "env"))

    def listens_on_socket(self, server: ServerContext) -> bool:
        return True

    async def reach(self, server: ServerContext) -> Confinement | None:
        return to_what_it_serves(server, self.program)

    def command(self, server: ServerContext) -> list[str]:
        return ["env", _socket(server), self.program, "--foreground", "--iscsi", f"portal={server.host}:{server.port}"]

    def reason(self, how: str, lines: Sequence[str]) -> str:
        return super().reason(how.replace("env ", f"{self.program} ", 1), lines)

    async def answers(self, server: ServerContext) -> bool:
        return (await server.confined.run(_admin(server, "show", "--mode", "sys"), check=False)).ok

    async def resource(self, server: ServerContext[File | Disk]) -> Export:
        below, node = server.below, server.confined  # it heeds its own user alone
        await node.run(_admin(server, "new", *_TARGET, "--targetname", self.export))
        for name, value in self.settings.items():
            await node.run(_admin(server, "update", *_TARGET, "--name", name, "--value", value))
        flags = ["--bsoflags", "direct"] if self.direct else []
        unit = [*_TARGET[:2], *_UNIT, "--tid", "1"]
        await node.run(_admin(server, "new", *unit, "--backing-store", below.path, *flags))
        if self.discard:
            await node.run(_admin(server, "update", *unit, "--params", "thin_provisioning=1"))
        await node.run(_admin(server, "bind", *_TARGET, "--initiator-address", "ALL"))
        cache = await has_volatile_cache(node, below) or not self.direct
        where = {"type": "inet", "host": str(server.host), "port": str(server.port)}
        said = (line.partition("=") for line in (await node.output(*_admin(server, "show", *_TARGET))).splitlines())
        limits = {name: number_or_text(value.strip()) for name, _, value in said if name in _SETTINGS}
        return Export(node.name, where, self.export, below.size, "iscsi", cache, limits)

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        limits = dict(resource.advertised)
        return {
            "server": self.program,
            **await super().facts(resource, context),
            "direct": self.direct,
            "limits": limits,
        }


def _socket(server: ServerContext) -> str:
    return f"TGT_IPC_SOCKET={server.socket}"


def _admin(server: ServerContext, operation: str, *words: str) -> list[str]:
    return ["env", _socket(server), "tgtadm", "--op", operation, *words]


# Layer ``iscsi-target``: LIO, the kernel's own iSCSI target, see Documentation/target in its sources; or tgt.

Implementation = Literal["lio", "tgt"]

_CORE = "/sys/kernel/config/target/core"
_ISCSI = "/sys/kernel/config/target/iscsi"
_KINDS = ("iblock", "fileio")
_PREFIX = "iqn.2026-01.local.storlab:"

_DEVICE = ("hw_max_sectors", "hw_queue_depth", "queue_depth", "emulate_fua_write", "emulate_tpu", "is_nonrot")
_LIMITS = (
    "FirstBurstLength", "ImmediateData", "InitialR2T", "MaxBurstLength", "MaxOutstandingR2T",
    "MaxRecvDataSegmentLength", "MaxXmitDataSegmentLength", "HeaderDigest", "DataDigest",
)  # fmt: skip


@undo("iscsi-target.remove")
async def _remove(node: Node, name: RunName, target: IscsiName) -> str | None:
    top = f"{_ISCSI}/{target}"
    group, lun = f"{top}/tpgt_1", f"{top}/tpgt_1/lun/lun_0"
    cores = [f"{_CORE}/{kind}_{small_number(name)}/{name}" for kind in _KINDS]
    look = *map(steps.look, (top, group, lun, f"{lun}/store", *cores)), steps.names(f"{group}/np")
    folder, served, unit, link, *found, portals = await node.carry_out(*look, go_on=True)
    wanted = [steps.write(f"{group}/enable", "0\n")] if served.there else []
    wanted += [steps.unlink(f"{lun}/store")] if link.there else []
    wanted += [steps.remove_directory(lun)] if unit.there else []
    wanted += [steps.remove_directory(f"{group}/np/{each}") for each in portals.entries]
    # The group of a session is part of this one, and goes with it.
    wanted += [steps.remove_directory(each) for each, done in ((group, served), (top, folder)) if done.there]
    mine = [core for core, done in zip(cores, found, strict=True) if done.there]
    await node.carry_out(*wanted, *map(steps.remove_directory, mine))
    await node.carry_out(*(steps.remove_directory(core.rpartition("/")[0]) for core in mine), go_on=True)
    return f"removed {target}" if served.there or mine else None


class IscsiTargetLayer(KernelTarget):
    """The underlying file or disk, served over iSCSI: by the kernel's own target, LIO, or by a program, tgt."""

    layer: Literal["iscsi-target"] = "iscsi-target"
    implementation: Implementation = Field("lio", description="`lio`, which is the kernel's own, or the program `tgt`.")
    discard: bool = Field(True, description="Discards are passed on, where the disk takes them.")
    immediate_data: bool = Field(True, description="Small writes go out with their command.")
    initial_r2t: bool = Field(True, description="Each write waits until the target asks for its data.")
    max_burst: Size = Field(262144, ge=512, le=16776192, multiple_of=512, description="Bytes of one transfer at most.")
    first_burst: Size = Field(65536, ge=512, le=16776192, multiple_of=512, description="Bytes sent unasked.")

    protocol: ClassVar = "iscsi"
    compared: ClassVar = ("server", "version", "backstore", "direct", "device.*", "limits.*")
    modules: ClassVar = ("target_core_mod", "target_core_iblock", "target_core_file", "iscsi_target_mod")
    first_port: ClassVar = 3260
    undoes: ClassVar = (_remove, *FileSays.undoes, *Tgt.undoes)

    def needs(self) -> Needs:
        return self._tgt("").needs() if self.implementation == "tgt" else super().needs()

    def enabled(self, export: str) -> str:
        return f"{_ISCSI}/{export}/tpgt_1/enable"

    async def set_up(self, below: File | Disk, context: LayerContext) -> Export:
        if self.implementation == "lio":
            return await super().set_up(below, context)
        network_address(context.node)
        return await self._tgt(f"{_PREFIX}{target_name(context, self.layer)}").set_up(below, context)

    def _tgt(self, export: str) -> Tgt:
        return Tgt(export=export, direct=self.direct, discard=self.discard, settings=self._settings())

    def _settings(self) -> dict[str, str]:
        yes = {True: "Yes", False: "No"}
        return {
            "ImmediateData": yes[self.immediate_data],
            "InitialR2T": yes[self.initial_r2t],
            "MaxBurstLength": str(self.max_burst),
            "FirstBurstLength": str(min(self.first_burst, self.max_burst)),
        }

    async def serve(self, below: File | Disk, name: str, port: int, context: LayerContext) -> str:
        target = f"{_PREFIX}{name}"
        await context.register_undo("iscsi-target.remove", name=name, target=target)
        if isinstance(below, Disk) and self.direct:
            kind, control = "iblock", f"udev_path={below.path},readonly=0"
        else:
            # Without buffered_io each write would be one with O_DSYNC; async_io makes all of them O_DIRECT.
            options = "fd_buffered_io=1" + ",fd_async_io=1" * self.direct
            kind, control = "fileio", f"fd_dev_name={below.path},fd_dev_size={below.size},{options}"
        await mount_configfs(context.node, "target")
        await self._make_core(f"{_CORE}/{kind}_{small_number(name)}/{name}", name, control, context.node)
        core, group = f"{_CORE}/{kind}_{small_number(name)}/{name}", f"{_ISCSI}/{target}/tpgt_1"
        try:
            await configure(context.node, *self._group(group, core, f"{context.node.address}:{port}"))
        except CommandFailed as error:  # the kernel calls any reason an invalid argument
            if "/np/" in error.detail and await is_taken(context.node, port):
                raise CommandFailed(str(error), f"{error.detail}\n{TAKEN}") from None
            raise
        return target

    async def _make_core(self, core: str, name: str, control: str, node: Node) -> None:
        """What is served, unless it is there from an attempt before."""
        (enabled,) = await node.texts(f"{core}/enable")
        if enabled != "1":
            made = {"control": control, "wwn/vpd_unit_serial": name, "enable": 1}
            await configure(node, steps.make_directory(core, parents=True), *settings(core, made))
            if self.discard:  # where the disk can
                await node.carry_out(*settings(core, {"attrib/emulate_tpu": 1}), go_on=True)

    def _group(self, group: str, core: str, portal: str) -> list[steps.Step]:
        """Whoever is in the network of the run may log in; there is nobody else."""
        attributes = {
            "authentication": 0,
            "generate_node_acls": 1,
            "cache_dynamic_acls": 1,
            "demo_mode_write_protect": 0,
        }
        return [
            steps.make_directory(group, parents=True),
            *settings(f"{group}/attrib", attributes),
            *settings(f"{group}/param", self._settings()),
            steps.make_directory(f"{group}/np/{portal}"),
            steps.make_directory(f"{group}/lun/lun_0", parents=True),
            steps.symlink(f"{group}/lun/lun_0/store", core),
            steps.write(f"{group}/enable", "1\n"),
        ]

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        if self.implementation == "tgt":
            return await self._tgt(resource.export).facts(resource, context)
        name = resource.export.removeprefix(_PREFIX)
        cores = {kind: f"{_CORE}/{kind}_{small_number(name)}/{name}" for kind in _KINDS}
        found = await context.node.carry_out(*map(steps.look, cores.values()), go_on=True)
        kind, core = next(each for each, done in zip(cores.items(), found, strict=True) if done.there)
        return {
            "server": "lio",
            "backstore": kind,
            "device": dict(await attributes(context.node, f"{core}/attrib", _DEVICE)),
            "limits": dict(await attributes(context.node, f"{_ISCSI}/{resource.export}/tpgt_1/param", _LIMITS)),
        }
