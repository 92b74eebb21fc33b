"""What a guest's machine consists of, as a study writes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, Strict, ValidationInfo, field_validator, model_validator

from storlab.base.allowed import NotAllowed, allowed
from storlab.base.reach import READS_FILE, Found, InGuest, Program, Reach, ReadsFile, options_of, path_from
from storlab.base.units import Duration, GuestMemory, shown
from storlab.images.recipe import series_of
from storlab.model import Model
from storlab.nodes.needs import Numbers

QEMU = "qemu-system-x86_64"
_INSTALLED = "installed"
# Not microvm: under emulation no clock of it tells the kernel how fast the CPU's counter runs (benchmarks/README.md).
Machine = Literal["q35", "pc"]
# With ERMS and FSRM, kernels copy and clear memory by instructions that move single bytes, and an emulator does each
# byte by itself: a guest then needs a third more CPU time for the same work (boots, fio, mkfs; benchmarks/README.md).
EMULATED_CPU = "max,erms=off,fsrm=off"


_ARGUMENTS = Reach("Arguments", "have QEMU open or run what Storlab does not know of, unless all are listed", "code")


def _kernel(value: str, info: ValidationInfo) -> str:
    return path_from(value, info) if series_of(value) is None else value


_Kernel = Annotated[str, READS_FILE, AfterValidator(_kernel)]


class Hardware(Model):
    """A guest's machine. Everything here can be a factor."""

    memory: GuestMemory = Field(512 * 1024**2, description="Memory of each guest.")
    cpus: Annotated[int, Strict()] = Field(1, ge=1, le=255, description="Virtual CPUs of each guest.")
    sockets: Annotated[int, Strict()] = Field(
        1, ge=1, le=255, description="Sockets of its board, among which its CPUs are divided."
    )
    numa_nodes: Annotated[int, Strict()] = Field(
        1,
        ge=1,
        le=128,
        description="NUMA nodes of the guest, among which its CPUs and memory are divided. A guest with several boots "
        "each time.",
    )
    machine: Machine = Field("q35", description="QEMU's machine type.")
    cpu: Annotated[str, options_of("QEMU")] = Field(
        "", description=f"QEMU's CPU model; by default `host` with KVM and `{EMULATED_CPU}` without."
    )
    accel: Literal["auto", "kvm", "tcg"] = Field(
        "auto", description="`auto`: KVM where a guest really boots in it, else emulation (TCG)."
    )
    start: Literal["restored", "cold"] = Field(
        "restored",
        description="`restored`: each guest is a copy of one that was booted and saved. `cold`: each one boots.",
    )
    pin: Numbers | None = Field(None, description='CPUs of this machine that QEMU may use: "0-1,4".')
    numa: Numbers | None = Field(None, description="NUMA nodes of this machine for QEMU: its CPUs and its memory.")
    qemu: Program = Field(
        _INSTALLED,
        max_length=4095,
        description="`installed`, or the path of a QEMU of your own, from 5.2 on; it needs `--allow code=PATH`.",
    )
    kernel: _Kernel | None = Field(
        None,
        description="Your own kernel: bzImage or vmlinux; or one of Debian's by its series, `debian:6.1`, which "
        "`storlab image kernel 6.1` unpacks. By default the image's.",
    )
    modules: ReadsFile | None = Field(None, description="Your kernel's modules: …/lib/modules/RELEASE.")
    rootfs: ReadsFile | None = Field(
        None, description="Your own root, with your kernel: a file with EROFS, ext4 or squashfs, or a folder."
    )
    zfs_tree: ReadsFile | None = Field(
        None,
        description="A source tree of OpenZFS, configured and built for the guests' kernel: its modules, commands and "
        "tests in place of the image's.",
    )
    gdb: bool = Field(False, description="QEMU's gdbstub on a socket, whose path is among the node's facts.")
    kernel_args: InGuest = Field("", description='More for the kernel\'s command line: "mitigations=off".')
    qemu_args: tuple[Annotated[str, options_of("QEMU")], ...] = Field(
        (),
        description="More for QEMU's command line. [What is listed](options.md) needs no permission; anything else can "
        "make QEMU do what Storlab does not know of, and then all of them, as words of a command, need "
        "`--allow code='-s -S'`.",
    )
    silence: Duration = Field(
        60.0,
        gt=0,
        description="A guest whose agent is silent for longer counts as hung, and its trial fails. One that answers "
        "again before that stood still for that time, which the probe `stalls` measures.",
    )

    beyond: ClassVar[Mapping[str, Reach]] = {"qemu_args": _ARGUMENTS}

    def reaches(self) -> Iterator[Found]:
        """All arguments, unless each is listed: what is no option to us may be the value of the one before to QEMU."""
        table, words = allowed("qemu"), [*self.qemu_args]
        while words:
            name = words.pop(0)
            rule = table.rule_of(name)
            value = words.pop(0) if rule is not None and rule.takes_value and words else None
            if table.problem(name, value) is not None:
                yield Found(("qemu_args",), "code", shlex.join(self.qemu_args))
                return

    @property
    def emulator(self) -> str:
        return self.qemu if self.own_qemu else QEMU

    @property
    def own_qemu(self) -> bool:
        return self.qemu != _INSTALLED

    @property
    def is_copied(self) -> bool:
        """Whether it may be a copy of a saved guest, whose memory is one file and so can't be that of several nodes."""
        return self.start == "restored" and self.numa_nodes == 1

    @field_validator("kernel", "modules", "rootfs", mode="before")
    @classmethod
    def _or_none(cls, value: object) -> object:
        return None if value == "" else value  # so that a parameter of a study may leave it out

    @field_validator("cpu")
    @classmethod
    def _a_listed_model(cls, value: str) -> str:
        if value and (wrong := allowed("qemu", "cpu").problem("cpu", value)) is not None:
            raise NotAllowed(wrong)
        return value

    @field_validator("qemu")
    @classmethod
    def _a_path(cls, value: str) -> str:
        if value != _INSTALLED and not value.startswith("/"):
            raise ValueError(f'{shown(value)} is no absolute path: write "{_INSTALLED}", or "/opt/qemu/bin/{QEMU}"')
        return value

    @model_validator(mode="after")
    def _with_a_kernel(self) -> Self:
        debian = self.kernel is not None and series_of(self.kernel) is not None
        for key in ("modules", "rootfs"):
            if getattr(self, key) is not None and self.kernel is None:
                raise ValueError(f"{key} goes with a kernel of your own: write kernel, too")
            if getattr(self, key) is not None and debian:
                raise ValueError(f"{key} goes with a kernel of your own: {self.kernel} has its modules and our root")
        return self

    @model_validator(mode="after")
    def _divided(self) -> Self:
        if self.cpus % self.sockets:
            raise ValueError(
                f"sockets = {self.sockets} does not divide cpus = {self.cpus} evenly: write a divisor of it"
            )
        if self.numa_nodes > self.cpus:
            raise ValueError(f"numa_nodes = {self.numa_nodes} is more than cpus = {self.cpus}: each node needs a CPU")
        return self

    @field_validator("silence")
    @classmethod
    def _some_patience(cls, seconds: float) -> float:
        if seconds < 2:
            raise ValueError("a busy guest may well be silent for a second: write 2s or more")
        return seconds
