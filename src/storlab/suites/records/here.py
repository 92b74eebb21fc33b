"""A suite on this machine itself, which its user has named as one that may be lost."""

from __future__ import annotations

from dataclasses import dataclass

from storlab.layers.block.identity import DeviceIdentity

FILES = "/var/tmp"


@dataclass(frozen=True)
class Here:
    """What of this machine a suite may use. ``machine``: its name, as the user wrote it.

    ``files``: the folder in which the run has its own; ``disks``: paths of devices, none for loop devices over files
    there; ``wipe``: those that may carry data; ``keep``: storage pools that may be imported; ``user``: who runs tests.
    """

    machine: str
    files: str = FILES
    disks: tuple[str, ...] = ()
    wipe: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    user: str = "root"
    devices: tuple[DeviceIdentity, ...] = ()  # what the disks were when the run began


def who_lacks(here: Here | None) -> str:
    return "the guest image" if here is None else "this machine"
