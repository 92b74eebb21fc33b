"""Whether KVM really works, which only a guest can tell: on some machines ``/dev/kvm`` answers and every guest dies."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec import Struct

from storlab.errors import RecordsError
from storlab.images.cache import storlab_cache
from storlab.images.image import Image
from storlab.nodes.console import panic
from storlab.nodes.kinds.vm.command import Accelerator
from storlab.nodes.kinds.vm.emulator import qemu_version
from storlab.nodes.kinds.vm.hardware import QEMU
from storlab.nodes.node import Node
from storlab.record import read_record, to_json

_ALIVE = "storlab-init: alive"
_PATIENCE = 10.0  # s; with KVM it takes about one


class Acceleration(Struct, frozen=True, forbid_unknown_fields=True):
    """What guests run with, and, where that is emulation, why KVM can't be had."""

    accelerator: Accelerator
    reason: str = ""


def kvm_device() -> str | None:
    """Why ``/dev/kvm`` can't even be opened; ``None`` where it can."""
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return "there is no /dev/kvm"
    except OSError as error:
        return f"cannot open /dev/kvm: {error.strerror}"
    return None


async def find_acceleration(image: Image, initrd: Path, host: Node, qemu: str = QEMU) -> Acceleration:
    """KVM where a tiny guest lives in it, else emulation. Tried once for each boot of this machine and each QEMU.

    QEMU runs as a command of ``host``, and so never outlives the controller.
    """
    reason = kvm_device()
    if reason is not None:
        return Acceleration("tcg", reason)
    memory = storlab_cache() / "kvm" / f"{await _machine(image, qemu)}.json"
    try:
        return read_record(memory, Acceleration)
    except (OSError, RecordsError):  # it is tried again
        pass
    found = await _try_kvm(image, initrd, host, qemu)
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.write_bytes(to_json(found))
    return found


async def _machine(image: Image, qemu: str) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8")
    key = "\0".join([boot, qemu, await qemu_version(qemu), str(image.kernel), str(os.geteuid())])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


async def _try_kvm(image: Image, initrd: Path, host: Node, qemu: str) -> Acceleration:
    argv = [
        *(qemu, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-accel", "kvm", "-machine", "q35", "-cpu", "host", "-m", "256M"),
        *("-kernel", str(image.kernel), "-initrd", str(initrd), "-serial", "stdio"),
        *("-append", "console=ttyS0 panic=-1 storlab.try=1"),
    ]
    ended = await host.run(argv, check=False, timeout=_PATIENCE, grace=0.5)
    text = ended.stdout.decode(errors="replace").replace("\r", "")
    if _ALIVE in text:
        return Acceleration("kvm")
    said = [] if ended.timed_out else ended.stderr.decode(errors="replace").strip().splitlines()
    waited = f"it did not boot within {_PATIENCE:g} s" if ended.timed_out else ended.describe()
    why = said[0] if said else panic(text) or waited
    return Acceleration("tcg", f"/dev/kvm answers, but a guest dies in it: {why}")
