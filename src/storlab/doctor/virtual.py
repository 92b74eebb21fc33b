"""Virtual machines: whether KVM works, QEMU, what guests' disks and networks need, shared folders, guest images."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from storlab.base.errors import MissingImage, StorlabError
from storlab.doctor.checks import Found, Look, missing, ok, program, warn
from storlab.doctor.machine import Machine
from storlab.images.cache import Listed, list_images, storlab_cache
from storlab.images.image import find_image
from storlab.images.unpacked import IMPLEMENTATIONS, find_virtiofsd
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.emulator import Acceleration, Confinement, find_acceleration, find_confinement
from storlab.nodes.kinds.vm.hardware import QEMU
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.needs import remedy

_BUILD = "storlab image build"
_KVM_GET_API_VERSION = 0xAE00  # linux/kvm.h
_LANGUAGES = {"rust": "Rust", "c": "C"}


def boot_a_guest() -> Acceleration:
    """Boot a tiny guest in KVM, once for each boot of this machine. Raises ``MissingImage``, ``MissingTool``."""

    async def boot() -> Acceleration:
        image = find_image()
        async with local_node("host") as host:
            return await find_acceleration(image, initrd_with_agent(image), host)

    return asyncio.run(boot())


def kvm(machine: Machine, boot: Callable[[], Acceleration] = boot_a_guest) -> Found:
    """Whether a guest lives in KVM: ``/dev/kvm`` may open and answer, and yet all of them die."""
    if not machine.exists("/dev/kvm"):
        return missing("no /dev/kvm: guests run emulated, some ten times slower", "modprobe kvm")
    try:
        api = _api_version()
    except OSError as error:
        fix = "adduser $USER kvm, then log in again" if isinstance(error, PermissionError) else ""
        return missing(f"/dev/kvm can't be used: {error.strerror}", fix)
    unproved = f"/dev/kvm answers (API {api}); only booting a guest proves that it works"
    try:
        found = boot()
    except MissingImage:
        return warn(f"{unproved}, and there is no image to boot", _BUILD)
    except StorlabError as error:
        return warn(f"{unproved}, and that can't be tried: {error}")
    if found.accelerator == "kvm":
        return ok("works: a guest was booted in it")
    return missing(f"{found.reason}: guests run emulated")


def _api_version() -> int:
    device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(device, _KVM_GET_API_VERSION)
    finally:
        os.close(device)


def qemu(name: str, package: str) -> Look:
    """QEMU, and whether its emulation can be relied on."""

    def look(machine: Machine) -> Found:
        found = program(name, package)(machine)
        if found.status == "ok" and found.says.startswith("7.2"):
            # That of Debian 12: emulated guests panicked at varying places, and none with 10.0.
            says = f"{found.says}: its emulation corrupts guests' memory now and then; with KVM it is sound"
            return warn(says, f"apt-get install --target-release bookworm-backports {package} qemu-utils")
        return found

    return look


def confine_a_qemu() -> Confinement:
    """Start a QEMU without a guest, for a moment. Raises ``StorlabError`` if there is none."""

    async def confine() -> Confinement:
        async with local_node("host") as host:
            return await find_confinement(QEMU, host)

    return asyncio.run(confine())


def confinement(machine: Machine, confine: Callable[[], Confinement] = confine_a_qemu) -> Found:
    """How far QEMU can be kept from the machine that it runs on, should a guest break out of it."""
    try:
        found = confine()
    except StorlabError as error:
        return missing(f"not known: {error}")
    user = "root" if machine.is_root else "the user of the run"
    if found.user is not None:
        user = "a user of its own"
    says = f"each guest's runs as {user}, {'in' if found.sandbox else 'without'} a sandbox"
    return warn(f"{says}: {found.reason}") if found.reason else ok(says)


def numa(machine: Machine) -> Found:
    if machine.which("numactl") is None:
        return missing("not installed; pin and numa need it", "apt-get install numactl")
    said = machine.run(["numactl", "--hardware"])
    if said.status != 0:
        return warn(said.first_line)
    nodes = said.first_line.replace("available", "NUMA", 1)
    return ok(nodes.replace("NUMA: 1 nodes", "NUMA: 1 node"))


def network(machine: Machine) -> Found:
    """A tap in a network namespace, as guests have that get their disks from another; it goes with its program."""
    if machine.which("ip") is None:
        return missing("ip is not installed", "apt-get install iproute2")
    if not machine.exists("/dev/net/tun"):
        return missing("there is no /dev/net/tun", "modprobe tun")
    if not machine.is_root:
        return missing("only root may make one", "run it as root, or with sudo")
    ended = machine.run(["unshare", "--net", "ip", "tuntap", "add", "dev", "storlab0", "mode", "tap"])
    if ended.status != 0:
        return missing(f"no tap could be made: {ended.first_line}", "give this container /dev/net/tun")
    return ok("a tap was created in a namespace and removed again")


def virtiofsd(machine: Machine) -> Found:
    """The daemon that shares a folder with a guest: in Rust, or the one in C of QEMU up to 7."""
    found = {each: words for each in IMPLEMENTATIONS if (words := find_virtiofsd(each)) is not None}
    if not found:
        return missing("not installed", remedy("virtiofsd"))
    said = []
    for each, words in found.items():
        version = re.search(r"\d+(\.\d+)+", machine.run([*words, "--version"]).first_line)
        where = "unpacked by Storlab" if len(words) > 1 else words[0]
        said.append(f"{version[0] if version else 'of no known version'} in {_LANGUAGES[each]}, {where}")
    return ok("; ".join(said))


def saved_guests(machine: Machine, folder: Path | None = None) -> Found:
    """Guests that were booted and saved for others to be copies of, and what they take up."""
    folder = folder or storlab_cache() / "saved"
    saved = list(folder.glob("*/state"))
    if not saved:
        return ok("none yet; the first run of a study boots one")
    blocks = sum(file.stat().st_blocks for path in saved for file in path.parent.iterdir())
    return ok(f"{len(saved)} in {folder}, {blocks * 512 / 1024**3:.1f}G")


def guest_image(machine: Machine, images: Sequence[Listed] | None = None) -> Found:
    images = list_images() if images is None else images
    current = [image for image in images if image.current]
    says = "; ".join(
        f"{image.name} (kernel {image.versions.get('kernel', image.release)}), "
        f"{sum(image.sizes.values()) / (1 << 20):.0f} MiB"
        for image in current or images
    )
    if current:
        return ok(says)
    if images:
        return warn(f"{says}; of another version of Storlab, and not used", _BUILD)
    return missing("none is built", _BUILD)
