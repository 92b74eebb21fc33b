"""A guest held at a test that failed: what ``--debug`` prints is what gdb attaches to."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from laboratory import Laboratory, ended
from storlab.run.suite.hold import symbols_of

SUITE = """
folder = "tests"
[guests]
memory = "640M"
cpus = 1
disks = 0
[groups.own]
tests = [{ name = "fails", run = "sleep 0.1; false" }]
"""


def test_symbols_come_from_an_elf_kernel_its_build_tree_or_an_installed_package(tmp_path: Path) -> None:
    built = tmp_path / "linux/arch/x86/boot/bzImage"
    installed, plain = tmp_path / "debug/boot/vmlinux-6.12.1-x", tmp_path / "boot/vmlinuz-6.12.1-x"
    for path in (built, installed, plain, tmp_path / "vmlinux"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF" if path.name.startswith("vmlinux") else b"MZ")

    def found(kernel: Path | None, release: str = "6.12.1-y") -> str | None:
        return symbols_of(None if kernel is None else str(kernel), release, str(tmp_path / "debug"))

    assert found(tmp_path / "vmlinux") == str(tmp_path / "vmlinux")
    assert found(None) is found(plain) is found(built) is None
    assert found(None, "6.12.1-x") == found(plain, "6.12.1-x") == found(built, "6.12.1-x") == str(installed)
    (tmp_path / "linux/vmlinux").write_bytes(b"\x7fELF")
    assert found(built, "6.12.1-x") == str(tmp_path / "linux/vmlinux")


@pytest.mark.needs("guests", "gdb")
def test_gdb_attaches_by_what_is_printed_and_the_run_continues_after_the_shell(lab: Laboratory) -> None:
    suite = lab.folder / "suite.toml"
    suite.write_text(SUITE)
    (lab.folder / "tests").mkdir()
    words = ("suite", "run", suite, "--debug", "--timeout-scale", "2.5", "--out", lab.out)
    running = lab.start(*words, stdin=subprocess.PIPE)
    assert running.stdin is not None and running.stderr is not None
    said: list[bytes] = []
    while not said or b"A shell in it" not in said[-1]:
        said.append(running.stderr.readline())
        assert said[-1], said
    (attach,) = (line.decode() for line in said if line.startswith(b"gdb "))
    argv = [*shlex.split(attach), "-batch", "-ex", "bt 1", "-ex", "detach"]
    attached = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    # In the kernel, or in a program of the guest.
    assert attached.stdout.count("\n#0  ") == 1 and "detached" in attached.stdout, attached
    running.stdin.write(b"exit\n")
    done = ended(running, 120)
    assert done.status == 3 and "1 FAIL" in done.stdout, done
