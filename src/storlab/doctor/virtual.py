"""Virtual machines: KVM, QEMU, shared folders."""

from __future__ import annotations

import fcntl
import os
import platform

from storlab.doctor.check import Check, missing, ok, warn
from storlab.doctor.machine import Machine
from storlab.doctor.programs import program

GROUP = "Virtual machines"
_KVM_GET_API_VERSION = 0xAE00  # linux/kvm.h
_VIRTIOFSD = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")  # Debian 13, Debian 12


def checks(machine: Machine) -> list[Check]:
    """All of them."""
    architecture = platform.machine()
    system = "arm" if architecture == "aarch64" else "x86"
    qemu = program(machine, GROUP, f"qemu-system-{architecture}", f"qemu-system-{system}")
    return [kvm(machine), qemu, virtiofsd(machine, f"qemu-system-{system}")]


def kvm(machine: Machine) -> Check:
    """Whether /dev/kvm opens and answers. It may, and yet guests die in it: only a boot proves more."""
    if not machine.exists("/dev/kvm"):
        return missing("KVM", GROUP, "no /dev/kvm: guests run emulated, some ten times slower", "modprobe kvm")
    try:
        device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        remedy = "adduser $USER kvm, and log in anew" if isinstance(error, PermissionError) else ""
        return missing("KVM", GROUP, f"/dev/kvm can't be opened: {error.strerror}", remedy)
    try:
        api = fcntl.ioctl(device, _KVM_GET_API_VERSION)
    except OSError as error:
        return missing("KVM", GROUP, f"/dev/kvm opens but doesn't answer: {error.strerror}")
    finally:
        os.close(device)
    return warn("KVM", GROUP, f"/dev/kvm answers (API {api}); only booting a guest proves that it works")


def virtiofsd(machine: Machine, package: str) -> Check:
    """The daemon that shares a folder with a guest: Rust's, or the C one of QEMU up to 7."""
    path = machine.which("virtiofsd") or next((path for path in _VIRTIOFSD if machine.exists(path)), None)
    if path is None:
        return missing("virtiofsd", GROUP, "not installed", f"apt-get install {package}")
    return ok("virtiofsd", GROUP, f"{path}: {machine.run([path, '--version']).first_line}")
