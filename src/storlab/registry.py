"""All node kinds, layers, workloads and probes by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds them without a line here, through the entry-point groups ``storlab.nodes``,
``storlab.layers``, ``storlab.workloads`` and ``storlab.probes``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from storlab.layers.attach.attachment import NvmeLayer, RootLayer, VirtioBlkLayer, VirtioScsiLayer
from storlab.layers.attach.ninep import NinePLayer
from storlab.layers.attach.pci import PciLayer, VfioLayer
from storlab.layers.attach.virtiofs import VirtiofsdLayer, VirtiofsLayer
from storlab.layers.base import Layer
from storlab.layers.block.bcache import BcacheLayer
from storlab.layers.block.crypt import CryptLayer
from storlab.layers.block.device import DeviceLayer, FillLayer
from storlab.layers.block.drivers import NullBlkLayer, ScsiDebugLayer, ZramLayer
from storlab.layers.block.integrity import IntegrityLayer, VerityLayer
from storlab.layers.block.loop import LoopLayer
from storlab.layers.block.lvm import LvmLayer
from storlab.layers.block.md import MdLayer
from storlab.layers.block.swap import SwapLayer
from storlab.layers.block.targets import DmLayer
from storlab.layers.database.innodb import MariadbLayer, MysqlLayer
from storlab.layers.database.postgresql import PostgresqlLayer
from storlab.layers.fs.files import DirectoryLayer, FileLayer
from storlab.layers.fs.images import ImageCloneLayer, ImageCopyLayer, Qcow2Layer
from storlab.layers.fs.mkfs import MkfsLayer
from storlab.layers.fs.mount import MountLayer, OverlayfsLayer
from storlab.layers.net.aoe import AoeLayer, AoeTargetLayer
from storlab.layers.net.connect import ConnectLayer, RelayLayer
from storlab.layers.net.iscsi import IscsiLayer
from storlab.layers.net.iscsi_target import IscsiTargetLayer
from storlab.layers.net.nbd import NbdLayer
from storlab.layers.net.nbd_export import NbdExportLayer
from storlab.layers.net.nvme import NvmeTargetLayer, NvmeTcpLayer
from storlab.layers.share.nfs import NfsLayer
from storlab.layers.share.nfs_export import NfsExportLayer
from storlab.layers.share.smb import SmbLayer, SmbShareLayer
from storlab.layers.share.sshfs import SshfsLayer, SshShareLayer
from storlab.layers.zfs.datasets import ZfsLayer, ZvolLayer, ZvolsLayer
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.nodes.kind import NodeKind
from storlab.nodes.kinds.local import LocalKind, NetnsKind
from storlab.nodes.kinds.ssh import SshKind
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.probes.alignment import AlignmentProbe
from storlab.probes.base import Probe
from storlab.probes.counters import CountersProbe
from storlab.probes.disks import StallsProbe
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.locks.probe import LocksProbe
from storlab.probes.memory import FoliosProbe, FragmentationProbe
from storlab.probes.nvme import NvmeProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.profile import ProfileProbe
from storlab.probes.server import ServerProbe
from storlab.probes.share_requests import ShareRequestsProbe
from storlab.probes.tcp.probe import TcpProbe
from storlab.probes.zfs.probe import ZfsProbe
from storlab.workloads.base import Workload
from storlab.workloads.bonnie import BonnieWorkload
from storlab.workloads.command import CommandWorkload
from storlab.workloads.files.workload import FilesWorkload
from storlab.workloads.fio.workload import FioWorkload
from storlab.workloads.ledger import LedgerWorkload
from storlab.workloads.pgbench import PgbenchWorkload
from storlab.workloads.posix.workload import PosixWorkload
from storlab.workloads.sql_ledger import SqlLedgerWorkload
from storlab.workloads.sysbench import SysbenchWorkload

T = TypeVar("T")

_NODE_KINDS: tuple[type[NodeKind], ...] = (LocalKind, NetnsKind, SshKind, VmKind)
_LAYERS: tuple[type[Layer], ...] = (
    DirectoryLayer, FileLayer, LoopLayer, DeviceLayer, FillLayer, ZramLayer, NullBlkLayer, ScsiDebugLayer,
    CryptLayer, DmLayer, LvmLayer, MdLayer, BcacheLayer, IntegrityLayer, VerityLayer, SwapLayer,
    MkfsLayer, MountLayer, OverlayfsLayer,
    ImageCopyLayer, ImageCloneLayer, Qcow2Layer, ZpoolLayer, ZvolLayer, ZvolsLayer, ZfsLayer,
    NbdExportLayer, IscsiTargetLayer, NvmeTargetLayer, AoeTargetLayer, RelayLayer,
    VirtioBlkLayer, VirtioScsiLayer, NvmeLayer, PciLayer, VfioLayer, RootLayer,
    NbdLayer, IscsiLayer, NvmeTcpLayer, AoeLayer, ConnectLayer,
    VirtiofsdLayer, VirtiofsLayer, NinePLayer,
    NfsExportLayer, NfsLayer, SmbShareLayer, SmbLayer, SshShareLayer, SshfsLayer,
    MariadbLayer, MysqlLayer, PostgresqlLayer,
)  # fmt: skip
_WORKLOADS: tuple[type[Workload], ...] = (
    FioWorkload, FilesWorkload, BonnieWorkload, PosixWorkload, LedgerWorkload, SysbenchWorkload, PgbenchWorkload,
    SqlLedgerWorkload, CommandWorkload,
)  # fmt: skip
_PROBES: tuple[type[Probe], ...] = (
    HostLoadProbe, StallsProbe, ProcessesProbe, AlignmentProbe, TcpProbe, ShareRequestsProbe, ServerProbe,
    ZfsProbe, LocksProbe, CountersProbe, ProfileProbe, FoliosProbe, FragmentationProbe, NvmeProbe,
)  # fmt: skip


@cache
def node_kinds() -> dict[str, type[NodeKind]]:
    return _with_others("nodes", {str(cls.model_fields["kind"].default): cls for cls in _NODE_KINDS})


@cache
def layer_types() -> dict[str, type[Layer]]:
    return _with_others("layers", {str(cls.model_fields["layer"].default): cls for cls in _LAYERS})


@cache
def workload_types() -> dict[str, type[Workload]]:
    return _with_others("workloads", {cls.kind: cls for cls in _WORKLOADS})


@cache
def probe_types() -> dict[str, type[Probe]]:
    return _with_others("probes", {cls.kind: cls for cls in _PROBES})


def _with_others(group: str, built_in: dict[str, type[T]]) -> dict[str, type[T]]:
    return built_in | {entry.name: entry.load() for entry in entry_points(group=f"storlab.{group}")}


def own_keys(group: Any) -> NodeKind:
    """A group's kind alone, without the keys that a study adds to it."""
    cls = node_kinds()[group.kind]
    return cls.model_construct(**{name: getattr(group, name) for name in cls.model_fields})
