"""Layer ``iscsi-target``: LIO, the kernel's own iSCSI target, see Documentation/target in its sources; or tgt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct
from pydantic import Field

from storlab.errors import Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.resources import Disk, Export, File, Resource
from storlab.layers.server.configfs import MOUNTED, KernelTarget, attributes, small_number, target_name
from storlab.layers.server.tgt import Tgt
from storlab.layers.share.watch import FileSays
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import Name, RunId, undo
from storlab.units import Size

Implementation = Literal["lio", "tgt"]

_CORE = "/sys/kernel/config/target/core"
_ISCSI = "/sys/kernel/config/target/iscsi"
_PREFIX = "iqn.2026-01.local.storlab:"

_SET_UP = (
    MOUNTED
    + r"""
name=$1 number=$2 kind=$3 control=$4 target=$5 portal=$6 discard=$7; shift 7
core=$root/target/core/${kind}_$number/$name tpg=$root/target/iscsi/$target/tpgt_1
mkdir -p "$core"
if [ "$(cat "$core/enable")" != 1 ]; then
    echo "$control" > "$core/control"
    echo "$name" > "$core/wwn/vpd_unit_serial"
    echo 1 > "$core/enable"
    [ -z "$discard" ] || { echo 1 > "$core/attrib/emulate_tpu"; } 2> /dev/null || true  # where the disk can
fi
mkdir -p "$tpg"
# Whoever is in the network of the run may log in; there is nobody else.
for each in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 "$@"; do
    case $each in */*) file=$tpg/${each%%=*} ;; *) file=$tpg/attrib/${each%%=*} ;; esac
    echo "${each#*=}" > "$file"
done
mkdir "$tpg/np/$portal" || {  # the kernel calls any reason an invalid argument
    [ -z "$(ss --listening --tcp --numeric --no-header "sport = :${portal##*:}")" ] || echo "Address already in use" >&2
    exit 1
}
[ -d "$tpg/lun/lun_0" ] || { mkdir "$tpg/lun/lun_0"; ln -s "$core" "$tpg/lun/lun_0/store"; }
echo 1 > "$tpg/enable"
"""
)
# In reverse. That of a session is part of its group, and goes with it.
_TEAR_DOWN = r"""
root=/sys/kernel/config/target name=$1 target=$2
for tpg in "$root/iscsi/$target"/tpgt_*; do
    [ -d "$tpg" ] || continue
    echo gone
    echo 0 > "$tpg/enable"
    for lun in "$tpg"/lun/lun_*; do
        [ -d "$lun" ] || continue
        find "$lun" -maxdepth 1 -type l -delete
        rmdir "$lun"
    done
    for portal in "$tpg"/np/*; do [ ! -d "$portal" ] || rmdir "$portal"; done
    rmdir "$tpg"
done
[ ! -d "$root/iscsi/$target" ] || rmdir "$root/iscsi/$target"
for core in "$root"/core/*/"$name"; do
    [ -d "$core" ] || continue
    echo gone
    rmdir "$core" && rmdir "${core%/*}" 2> /dev/null
done
[ ! -d "$root/iscsi/$target" ] && ! ls -d "$root"/core/*/"$name" 2> /dev/null
"""
_DEVICE = ("hw_max_sectors", "hw_queue_depth", "queue_depth", "emulate_fua_write", "emulate_tpu", "is_nonrot")
_LIMITS = (
    "FirstBurstLength", "ImmediateData", "InitialR2T", "MaxBurstLength", "MaxOutstandingR2T",
    "MaxRecvDataSegmentLength", "MaxXmitDataSegmentLength", "HeaderDigest", "DataDigest",
)  # fmt: skip


class _Target(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    target: Annotated[str, Meta(pattern=r"^iqn\.[A-Za-z0-9.:-]{1,220}$")]
    run: RunId


@undo("iscsi-target.remove", arguments=_Target)
async def _remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    ended = await node.run(["sh", "-c", _TEAR_DOWN, "remove", arguments["name"], arguments["target"]], check=False)
    ended.check(node.name)
    return f"removed {arguments['target']}" if b"gone" in ended.stdout else None


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
    modules: ClassVar = ("target_core_mod", "target_core_iblock", "target_core_file", "iscsi_target_mod")
    first_port: ClassVar = 3260
    undoes: ClassVar = (_remove, *FileSays.undoes)  # those of all servers, tgt among them

    def needs(self) -> Needs:
        return self._tgt("").needs() if self.implementation == "tgt" else super().needs() | Needs(programs=("ss",))

    def enabled(self, export: str) -> str:
        return f"{_ISCSI}/{export}/tpgt_1/enable"

    async def set_up(self, below: Resource | None, context: LayerContext) -> Export:
        if self.implementation == "lio":
            return await super().set_up(below, context)
        if context.node.address is None:
            raise Unsupported(f"layer {self.layer}: node {context.node.name} is in no network of the run")
        export = await self._tgt(f"{_PREFIX}{target_name(context, self.layer)}").set_up(below, context)
        assert isinstance(export, Export)
        return export

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
        await context.register_undo("iscsi-target.remove", name=name, target=target, run=context.run)
        if isinstance(below, Disk) and self.direct:
            kind, control = "iblock", f"udev_path={below.path},readonly=0"
        else:
            # Without buffered_io each write would be one with O_DSYNC; async_io makes all of them O_DIRECT.
            options = "fd_buffered_io=1" + ",fd_async_io=1" * self.direct
            kind, control = "fileio", f"fd_dev_name={below.path},fd_dev_size={below.size},{options}"
        words = [f"param/{key}={value}" for key, value in self._settings().items()]
        fixed = (
            name,
            str(small_number(name)),
            kind,
            control,
            target,
            f"{context.node.address}:{port}",
            "discard" * self.discard,
        )
        await context.node.run(["sh", "-c", _SET_UP, "serve", "target", *fixed, *words])
        return target

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Export)
        if self.implementation == "tgt":
            return await self._tgt(resource.export).facts(resource, context)
        name = resource.export.removeprefix(_PREFIX)
        listing = await context.node.output("sh", "-c", f"echo {_CORE}/*_{small_number(name)}/{name}")
        core = listing.strip()
        return {
            "server": "lio",
            "backstore": core.split("/")[-2].rpartition("_")[0],
            "device": dict(await attributes(context.node, f"{core}/attrib", _DEVICE)),
            "limits": dict(await attributes(context.node, f"{_ISCSI}/{resource.export}/tpgt_1/param", _LIMITS)),
        }
