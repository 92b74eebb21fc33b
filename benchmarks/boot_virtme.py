"""virtme-ng's side of boot.py, as fast as it can be made.

It gets the guest image's kernel as ELF, as Storlab's guests do, the same memory and CPU, modules that need no
unpacking, and a root with nothing but busybox (in this machine's own it runs systemd-tmpfiles first). It exports the
root by virtiofs where virtiofsd is on the PATH (the one in Rust; Debian 12 has none: `cargo install virtiofsd`), else
over 9p, which is slower. With KVM it takes QEMU's microvm by itself. That it makes an initial RAM disk each time is a
part of its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.starts import Start, age, cpu_seconds, memory, pid_of
from storlab.images.image import Image
from storlab.nodes.kinds.vm.hardware import Hardware

_FOLDERS = ("bin", "dev", "etc", "home", "lib64", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp")
_MORE = ("usr/bin", "usr/sbin", "var/lib", "var/tmp")
_PATIENCE = 180.0  # s
_POLL = 0.01  # s
_STAYS = 30  # s in which the guest is looked at, and then killed


@dataclass(frozen=True)
class Started:
    """One guest whose command has run."""

    pid: int
    at: float
    emulated: float


@dataclass
class Virtme:
    """Runs ``vng``. ``tree``: the guest's root, with the kernel."""

    program: str
    tree: Path
    kernel: Path
    kvm: bool
    numbers: count[int] = field(default_factory=count)

    @staticmethod
    async def prepared(image: Image, tree: Path, *, kvm: bool) -> Virtme:
        """With a root of its own in ``tree``."""
        program = Path(sys.executable).with_name("vng")
        busybox = shutil.which("busybox")
        if not program.exists():
            raise SystemExit("virtme-ng is not there: `uv sync` installs it, with the other tools for development")
        if busybox is None:
            raise SystemExit("virtme-ng needs a static busybox: apt-get install busybox-static")
        await asyncio.to_thread(_make_root, tree, image, busybox)
        kernel = tree / "usr" / "lib" / "modules" / image.release / "vmlinux"
        return Virtme(str(program), tree, kernel, kvm)

    @property
    def version(self) -> str:
        """virtme-ng's."""
        said = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=True).stdout
        return said.split()[-1]

    @property
    def root_over(self) -> str:
        """How the guest gets its root."""
        return "virtiofs" if shutil.which("virtiofsd") else "9p"

    @property
    def command_text(self) -> str:
        """For people."""
        return shlex.join(self._command("NAME", Path("FILE")))

    def _command(self, name: str, port: Path) -> list[str]:
        hardware = Hardware()
        return [
            *(self.program, "--run", str(self.kernel), "--root", str(self.tree), "--name", name),
            *([] if self.kvm else ["--disable-kvm"]),
            *("--memory", f"{hardware.memory // 1024**2}M", "--cpus", str(hardware.cpus)),
            # It finds its own ports to the host with udev's help only, which costs it time: a serial port is there.
            f"--qemu-opts=-chardev file,id=storlab,path={port} -device isa-serial,chardev=storlab",
            *("--exec", f"uname -r > /dev/ttyS1; sleep {_STAYS}"),
        ]

    async def start(self, guests: int) -> Start:
        """Start so many at once, and kill them."""
        async with AsyncExitStack() as stack:
            began = time.monotonic()
            running = await asyncio.gather(*(stack.enter_async_context(self._guest()) for _ in range(guests)))
            seen = [memory(each.pid, Hardware().memory) for each in running]
            return Start(
                command=max(each.at for each in running) - began,
                answering=0,
                emulated=max(each.emulated for each in running),
                cpu=sum(cpu_seconds(each.pid) for each in running),
                ram=sum(each.ram for each in seen) / guests,
                others=sum(each.others for each in seen) / guests,
            )

    @asynccontextmanager
    async def _guest(self) -> AsyncIterator[Started]:
        name = f"storlab-benchmark-{os.getpid()}-{next(self.numbers)}"
        port = self.tree.with_name(name)
        log = port.with_suffix(".log")
        with log.open("wb") as said:
            argv = self._command(name, port)
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | {"PATH": f"{Path(self.program).parent}:{os.environ['PATH']}"},
            )
        try:
            await _answer(port, process, log)
            pid = pid_of(name)
            assert pid is not None, "the guest that has answered is gone"
            yield Started(pid, time.monotonic(), age(pid))
        finally:
            pid = pid_of(name)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)  # which ends vng, and that virtiofsd
            elif process.returncode is None:
                process.kill()
            await process.wait()


async def _answer(port: Path, process: asyncio.subprocess.Process, log: Path) -> None:
    """Wait for the command's output."""
    deadline = time.monotonic() + _PATIENCE
    while not (port.exists() and port.read_bytes().endswith(b"\n")):
        if process.returncode is not None or time.monotonic() > deadline:
            raise SystemExit(f"virtme-ng's guest did not run its command; it said: {log.read_text(errors='replace')}")
        await asyncio.sleep(_POLL)


def _make_root(tree: Path, image: Image, busybox: str) -> None:
    tree.mkdir(parents=True)
    modules = image.layers[1]
    subprocess.run(["fsck.erofs", f"--extract={tree}", "--overwrite", str(modules)], check=True, capture_output=True)
    (tree / "lib").symlink_to("usr/lib")
    for folder in (*_FOLDERS, *_MORE):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(busybox, tree / "bin" / "busybox")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if not (tree / "bin" / name).exists():
            (tree / "bin" / name).symlink_to("busybox")
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc" / "group").write_text("root:x:0:\n")
    shutil.copyfile(image.kernel, tree / "usr" / "lib" / "modules" / image.release / "vmlinux")
