"""Virtual machines: whether KVM works, QEMU, what guests' disks and networks need, shared folders, guest images."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from storlab.doctor.machine import Check, Machine, missing, ok, program, warn
from storlab.errors import MissingImage, StorlabError
from storlab.images.cache import storlab_cache
from storlab.images.image import find_image
from storlab.images.manifest import Listed, list_images
from storlab.images.virtiofsd import IMPLEMENTATIONS, find_virtiofsd
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.accelerator import Acceleration, find_acceleration
from storlab.nodes.kinds.vm.confinement import Confinement, find_confinement
from storlab.nodes.kinds.vm.hardware import QEMU
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.needs import remedy

GROUP = "Virtual machines"
_BUILD = "storlab image build"
_KVM_GET_API_VERSION = 0xAE00  # linux/kvm.h
_LANGUAGES = {"rust": "Rust", "c": "C"}
_UNSOUND = ("7.2",)  # QEMU of Debian 12: emulated guests panicked at varying places, and none with 10.0


def checks(machine: Machine) -> list[Check]:
    """All of them."""
    architecture = platform.machine()
    system = "qemu-system-arm" if architecture == "aarch64" else "qemu-system-x86"
    made = (("qemu-img", "it makes qcow2 disks"), ("qemu-nbd", "it serves disks over NBD"))
    tools = (program(machine, GROUP, name, "qemu-utils", what=what) for name, what in made)
    found = [kvm(machine, boot_a_guest), qemu(machine, f"qemu-system-{architecture}", system), *tools]
    found += [confinement(confine_a_qemu), numa(machine), network(machine), virtiofsd(machine)]
    return [*found, saved_guests(storlab_cache() / "saved"), guest_image(list_images())]


def kvm(machine: Machine, boot: Callable[[], Acceleration]) -> Check:
    """Whether a guest lives in KVM: ``/dev/kvm`` may open and answer, and yet all of them die."""
    if not machine.exists("/dev/kvm"):
        return missing("KVM", GROUP, "no /dev/kvm: guests run emulated, some ten times slower", "modprobe kvm")
    try:
        api = _api_version()
    except OSError as error:
        remedy = "adduser $USER kvm, then log in again" if isinstance(error, PermissionError) else ""
        return missing("KVM", GROUP, f"/dev/kvm can't be used: {error.strerror}", remedy)
    unproved = f"/dev/kvm answers (API {api}); only booting a guest proves that it works"
    try:
        found = boot()
    except MissingImage:
        return warn("KVM", GROUP, f"{unproved}, and there is no image to boot", "storlab image build")
    except StorlabError as error:
        return warn("KVM", GROUP, f"{unproved}, and that can't be tried: {error}")
    if found.accelerator == "kvm":
        return ok("KVM", GROUP, "works: a guest was booted in it")
    return missing("KVM", GROUP, f"{found.reason}: guests run emulated")


def _api_version() -> int:
    device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(device, _KVM_GET_API_VERSION)
    finally:
        os.close(device)


def boot_a_guest() -> Acceleration:
    """Boot a tiny guest in KVM, once for each boot of this machine. Raises ``MissingImage``, ``MissingTool``."""

    async def boot() -> Acceleration:
        image = find_image()
        async with local_node("host") as host:
            return await find_acceleration(image, initrd_with_agent(image), host)

    return asyncio.run(boot())


def qemu(machine: Machine, name: str, package: str) -> Check:
    """QEMU, and whether its emulation can be relied on."""
    found = program(machine, GROUP, name, package)
    if found.status == "ok" and re.match("|".join(map(re.escape, _UNSOUND)), found.says):
        says = f"{found.says}: its emulation corrupts guests' memory now and then; with KVM it is sound"
        return warn(name, GROUP, says, f"apt-get install --target-release bookworm-backports {package} qemu-utils")
    return found


def confinement(confine: Callable[[], Confinement]) -> Check:
    """How far QEMU can be kept from the machine that it runs on, should a guest break out of it."""
    name = "QEMU's rights"
    try:
        found = confine()
    except StorlabError as error:
        return missing(name, GROUP, f"not known: {error}")
    filtered = "in a sandbox" if found.sandbox else "without a sandbox"
    if found.user is not None:
        says = f"each guest's runs as a user of its own, {filtered}"
    else:
        says = f"each guest's runs as {'root' if os.geteuid() == 0 else 'the user of the run'}, {filtered}"
    return warn(name, GROUP, f"{says}: {found.reason}") if found.reason else ok(name, GROUP, says)


def confine_a_qemu() -> Confinement:
    """Start a QEMU without a guest, for a moment. Raises ``StorlabError`` where there is none."""

    async def confine() -> Confinement:
        async with local_node("host") as host:
            return await find_confinement(QEMU, host)

    return asyncio.run(confine())


def numa(machine: Machine) -> Check:
    """What binds guests to CPUs and NUMA nodes."""
    if machine.which("numactl") is None:
        return missing("numactl", GROUP, "not installed; pin and numa need it", "apt-get install numactl")
    said = machine.run(["numactl", "--hardware"])
    if said.status != 0:
        return warn("numactl", GROUP, said.first_line)
    nodes = said.first_line.replace("available", "NUMA", 1)
    return ok("numactl", GROUP, nodes.replace("NUMA: 1 nodes", "NUMA: 1 node"))


def network(machine: Machine) -> Check:
    """A tap in a network namespace, as guests have that get their disks from another; it goes with its program."""
    name = "network among guests"
    if machine.which("ip") is None:
        return missing(name, GROUP, "ip is not installed", "apt-get install iproute2")
    if not machine.exists("/dev/net/tun"):
        return missing(name, GROUP, "there is no /dev/net/tun", "modprobe tun")
    if not machine.is_root:
        return missing(name, GROUP, "only root may make one", "run it as root, or with sudo")
    ended = machine.run(["unshare", "--net", "ip", "tuntap", "add", "dev", "storlab0", "mode", "tap"])
    if ended.status != 0:
        return missing(name, GROUP, f"no tap could be made: {ended.first_line}", "give this container /dev/net/tun")
    return ok(name, GROUP, "a tap was created in a namespace and removed again")


def virtiofsd(machine: Machine) -> Check:
    """The daemon that shares a folder with a guest: in Rust, or the one in C of QEMU up to 7."""
    found = {each: words for each in IMPLEMENTATIONS if (words := find_virtiofsd(each)) is not None}
    if not found:
        return missing("virtiofsd", GROUP, "not installed", remedy("virtiofsd"))
    said = []
    for each, words in found.items():
        version = re.search(r"\d+(\.\d+)+", machine.run([*words, "--version"]).first_line)
        where = "unpacked by Storlab" if len(words) > 1 else words[0]
        said.append(f"{version[0] if version else 'of no known version'} in {_LANGUAGES[each]}, {where}")
    return ok("virtiofsd", GROUP, "; ".join(said))


def saved_guests(folder: Path) -> Check:
    """Guests that were booted and saved for others to be copies of, and what they take up."""
    name = "saved guests"
    saved = list(folder.glob("*/state"))
    if not saved:
        return ok(name, GROUP, "none yet; the first run of a study boots one")
    blocks = sum(file.stat().st_blocks for path in saved for file in path.parent.iterdir())
    return ok(name, GROUP, f"{len(saved)} in {folder}, {blocks * 512 / 1024**3:.1f}G")


def guest_image(images: Sequence[Listed]) -> Check:
    """``images``: all that are in the cache."""
    current = [image for image in images if image.current]
    says = "; ".join(map(_describe, current or images))
    if current:
        return ok("guest image", GROUP, says)
    if images:
        return warn("guest image", GROUP, f"{says}; of another version of Storlab, and not used", _BUILD)
    return missing("guest image", GROUP, "none is built", _BUILD)


def _describe(image: Listed) -> str:
    size = sum(image.sizes.values()) / (1 << 20)
    return f"{image.name} (kernel {image.versions.get('kernel', image.release)}), {size:.0f} MiB"
