"""All layers by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds layers without a line here, through the entry-point group ``storlab.layers``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from storlab.layers.attach.attachment import NvmeLayer, VirtioBlkLayer, VirtioScsiLayer
from storlab.layers.attach.ninep import NinePLayer
from storlab.layers.base import Layer
from storlab.layers.block.device import DeviceLayer
from storlab.layers.block.loop import LoopLayer
from storlab.layers.fs.directory import DirectoryLayer
from storlab.layers.fs.file import FileLayer
from storlab.layers.fs.mkfs import MkfsLayer
from storlab.layers.fs.mount import MountLayer
from storlab.layers.image.clone import ImageCloneLayer
from storlab.layers.image.copy import ImageCopyLayer
from storlab.layers.image.qcow2 import Qcow2Layer
from storlab.layers.net.connect import ConnectLayer
from storlab.layers.net.nbd import NbdLayer
from storlab.layers.server.nbd_export import NbdExportLayer
from storlab.layers.zfs.dataset import ZfsLayer
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.layers.zfs.volume import ZvolLayer

_BUILT_IN: tuple[type[Layer], ...] = (
    DirectoryLayer,
    FileLayer,
    LoopLayer,
    DeviceLayer,
    MkfsLayer,
    MountLayer,
    ImageCopyLayer,
    ImageCloneLayer,
    Qcow2Layer,
    ZpoolLayer,
    ZvolLayer,
    ZfsLayer,
    NbdExportLayer,
    VirtioBlkLayer,
    VirtioScsiLayer,
    NvmeLayer,
    NinePLayer,
    NbdLayer,
    ConnectLayer,
)


@cache
def layer_types() -> dict[str, type[Layer]]:
    """Name in study files → class."""
    found = {str(cls.model_fields["layer"].default): cls for cls in _BUILT_IN}
    for entry in entry_points(group="storlab.layers"):
        found[entry.name] = entry.load()
    return found
