"""All layers by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds layers without a line here, through the entry-point group ``storlab.layers``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from storlab.layers.base import Layer
from storlab.layers.device import DeviceLayer
from storlab.layers.directory import DirectoryLayer
from storlab.layers.file import FileLayer
from storlab.layers.image_clone import ImageCloneLayer
from storlab.layers.image_copy import ImageCopyLayer
from storlab.layers.loop import LoopLayer
from storlab.layers.mkfs import MkfsLayer
from storlab.layers.mount import MountLayer
from storlab.layers.nbd_export import NbdExportLayer
from storlab.layers.nvme import NvmeLayer
from storlab.layers.qcow2 import Qcow2Layer
from storlab.layers.virtio_blk import VirtioBlkLayer
from storlab.layers.virtio_scsi import VirtioScsiLayer
from storlab.layers.zfs import ZfsLayer
from storlab.layers.zpool import ZpoolLayer
from storlab.layers.zvol import ZvolLayer

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
)


@cache
def layer_types() -> dict[str, type[Layer]]:
    """Name in study files → class."""
    found = {str(cls.model_fields["layer"].default): cls for cls in _BUILT_IN}
    for entry in entry_points(group="storlab.layers"):
        found[entry.name] = entry.load()
    return found
