"""The protocols of network block devices: which layer serves each, and which makes a disk of what is served."""

from __future__ import annotations

from dataclasses import dataclass

from storlab.layers.base import Layer
from storlab.layers.resources import Export, Protocol


@dataclass(frozen=True)
class _Names:
    title: str
    target: str
    initiator: str


_NAMES: dict[Protocol, _Names] = {
    "nbd": _Names("NBD", "nbd-export", "nbd"),
    "iscsi": _Names("iSCSI", "iscsi-target", "iscsi"),
    "nvme-tcp": _Names("NVMe/TCP", "nvme-target", "nvme-tcp"),
    "aoe": _Names("AoE", "aoe-target", "aoe"),
}

_STAGING = "it was among Linux's staging drivers for some releases, and is gone from the kernel"
_NOT_BUILT = "the kernel that guests boot is built without it"
ABSENT: dict[str, str] = {
    "dst": f"{_STAGING}; nbd and nvme-tcp do what it did",
    "pohmelfs": f"{_STAGING}; nfs does what it did",
    "rnbd": f"{_NOT_BUILT}, and it needs RDMA; nbd and nvme-tcp go over TCP",
    "siw": f"{_NOT_BUILT}, so there is no RDMA over TCP; nvme-tcp needs none",
}
"""Protocols that people look for and no guest has: why not, and what to take instead."""


def title(protocol: Protocol) -> str:
    return _NAMES[protocol].title


def served_by(layer: Layer | None) -> Protocol | None:
    """What a layer serves by; ``None`` where it serves nothing, or that shows only once it is set up (``connect``)."""
    named = getattr(layer, "protocol", None)
    known = next((protocol for protocol in _NAMES if protocol == named), None)
    return "nbd" if known is None and layer is not None and layer.gives is Export else known


def mismatch(wanted: Protocol, below: Layer | None) -> str | None:
    """What is wrong where something that speaks ``wanted`` is above this layer; ``None`` where nothing is."""
    found = served_by(below)
    if below is None or found is None or found == wanted:
        return None
    here, there = _NAMES[wanted], _NAMES[found]
    return (
        f"it speaks {here.title}, but layer {below.layer} below it serves {there.title}: "
        f'put {{ layer = "{there.initiator}" }} here, or {{ layer = "{here.target}" }} below'
    )


def refused_by_qemu(below: Layer | None) -> str | None:
    """What is wrong where QEMU is to open what this layer serves."""
    found = served_by(below)
    if below is None or found in (None, "nbd"):
        return None
    served = _NAMES[found]
    return (
        f"QEMU opens exports of NBD alone, but layer {below.layer} below it serves {served.title}: "
        f'put {{ layer = "nbd-export" }} there, or {{ layer = "{served.initiator}" }} here'
    )
