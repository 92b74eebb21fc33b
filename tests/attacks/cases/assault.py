"""A load that tries what no load may: prints, as JSON, what came of each attempt, "done" or the error's name.

Arguments: a directory of a file system that the study doesn't name, a process outside, an abstract socket, a port.
Nothing here would harm more than what the test made for it.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

other, victim, abstract, port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
target = sys.argv[5]
libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[], None]] = {}

# Numbers of asm/unistd.h; others have others, and are not tried there.
X86 = {
    "ptrace": 101, "syslog": 103, "setdomainname": 171, "acct": 163, "adjtimex": 159, "settimeofday": 164,
    "swapon": 167, "reboot": 169, "sethostname": 170, "iopl": 172, "init_module": 175, "quotactl": 179,
    "pivot_root": 155, "mount": 165, "umount2": 166, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "ioprio_set": 251, "unshare": 272, "perf_event_open": 298,
    "fanotify_init": 300, "prlimit64": 302, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
    "finit_module": 313, "bpf": 321, "userfaultfd": 323, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "pidfd_getfd": 438, "mount_setattr": 442, "clone": 56, "clone3": 435, "personality": 135, "kcmp": 312,
}  # fmt: skip


def attempt(function: Callable[[], None]) -> Callable[[], None]:
    ATTEMPTS[function.__name__] = function
    return function


def call(name: str, *arguments: Any) -> int:
    """One system call; raises ``OSError``."""
    given = [each if isinstance(each, bytes | ctypes.Array) else ctypes.c_long(each) for each in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(X86[name]), *given)
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return int(result)


def ioctl_on_other(request: int, argument: Any) -> None:
    folder = os.open(other, os.O_RDONLY)
    try:
        fcntl.ioctl(folder, request, argument)
    finally:
        os.close(folder)


@attempt
def freezes_a_file_system() -> None:
    ioctl_on_other(0xC0045877, 0)
    ioctl_on_other(0xC0045878, 0)


@attempt
def trims_a_file_system() -> None:
    ioctl_on_other(0xC0185879, struct.pack("QQQ", 0, 2**63, 0))


@attempt
def shuts_a_file_system_down() -> None:
    ioctl_on_other(0x8004587D, struct.pack("I", 1))


@attempt
def sets_the_label_of_a_file_system() -> None:
    ioctl_on_other(0x41009432, b"mine".ljust(256, b"\0"))


@attempt
def loads_a_program_into_the_kernel() -> None:
    call("bpf", 5, ctypes.create_string_buffer(128), 128)


@attempt
def counts_the_whole_machine() -> None:
    call("perf_event_open", ctypes.create_string_buffer(struct.pack("II", 1, 112).ljust(112, b"\0"), 112), -1, 0, -1, 0)


@attempt
def names_the_machine() -> None:
    call("sethostname", b"evil", 4)


@attempt
def names_the_domain() -> None:
    call("setdomainname", b"evil", 4)


@attempt
def limits_another_process() -> None:
    call("prlimit64", victim, resource.RLIMIT_NOFILE, struct.pack("QQ", 7, 7), 0)


@attempt
def binds_another_process_to_a_cpu() -> None:
    os.sched_setaffinity(victim, {0})


@attempt
def makes_another_process_slow() -> None:
    os.setpriority(os.PRIO_PROCESS, victim, 19)


@attempt
def makes_the_io_of_another_process_slow() -> None:
    call("ioprio_set", 1, victim, 3 << 13)


@attempt
def signals_another_process() -> None:
    os.kill(victim, 0)


@attempt
def traces_another_process() -> None:
    call("ptrace", 16, victim, 0, 0)


@attempt
def sees_another_process() -> None:
    Path(f"/proc/{victim}").stat()


@attempt
def reads_the_environment_of_another_process() -> None:
    Path(f"/proc/{victim}/environ").read_bytes()


@attempt
def looks_into_the_root_of_another_process() -> None:
    list(Path(f"/proc/{victim}/root/").iterdir())


@attempt
def takes_a_descriptor_of_another_process() -> None:
    call("pidfd_getfd", os.pidfd_open(victim), 0, 0)


@attempt
def swaps_to_its_target() -> None:
    path = Path(target, "swap-of-a-load")
    path.write_bytes(bytes(1024**2))
    path.chmod(0o600)
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    call("swapon", bytes(path), 0)


@attempt
def mounts() -> None:
    call("mount", b"none", target.encode(), b"tmpfs", 0, 0)


@attempt
def unmounts() -> None:
    call("umount2", b"/dev", 2)


@attempt
def mounts_by_the_new_calls() -> None:
    call("fsopen", b"tmpfs", 0)


@attempt
def clones_a_mount() -> None:
    call("open_tree", -100, b"/", 1)


@attempt
def changes_a_mount() -> None:
    call("mount_setattr", -100, b"/", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)


@attempt
def pivots() -> None:
    call("pivot_root", target.encode(), target.encode())


@attempt
def changes_its_root() -> None:
    os.chroot(target)


@attempt
def gets_mounts_of_its_own() -> None:
    call("unshare", 0x00020000)


@attempt
def becomes_root_of_a_namespace() -> None:
    call("unshare", 0x10000000)


@attempt
def has_a_child_that_is_root_of_a_namespace() -> None:
    if call("clone", 0x10000000 | 17, 0, 0, 0, 0) == 0:
        os._exit(0)


@attempt
def has_one_by_the_new_call() -> None:
    if call("clone3", struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64) == 0:
        os._exit(0)


@attempt
def enters_a_namespace() -> None:
    call("setns", os.open("/proc/1/ns/uts", os.O_RDONLY), 0)


@attempt
def makes_a_device() -> None:
    os.mknod(f"{target}/node", 0o60600, os.makedev(7, 0))


@attempt
def opens_a_file_by_its_handle() -> None:
    call("open_by_handle_at", -100, ctypes.create_string_buffer(64), 0)


@attempt
def sets_the_clock() -> None:
    now = struct.pack("qq", 1, 0)
    call("clock_settime", 0, now)


@attempt
def adjusts_the_clock() -> None:
    call("adjtimex", ctypes.create_string_buffer(struct.pack("I", 0x4000).ljust(256, b"\0"), 256))


@attempt
def says_what_takes_core_files() -> None:
    Path("/proc/sys/kernel/core_pattern").write_text("|/bin/false")


@attempt
def sends_a_magic_key() -> None:
    Path("/proc/sysrq-trigger").write_text("h")


@attempt
def reads_the_log_of_the_kernel() -> None:
    call("syslog", 3, ctypes.create_string_buffer(64), 64)


@attempt
def keeps_accounts() -> None:
    call("acct", f"{target}/acct".encode())


@attempt
def watches_all_files() -> None:
    call("fanotify_init", 0, 0)


@attempt
def adds_a_key() -> None:
    call("add_key", b"user", b"evil", b"x", 1, -3)


@attempt
def asks_for_a_session_of_keys() -> None:
    call("keyctl", 1, 0)


@attempt
def asks_for_quotas() -> None:
    call("quotactl", 0x80000100, b"/", 0, 0)


@attempt
def loads_a_module() -> None:
    call("finit_module", 0, b"", 0)


@attempt
def loads_a_kernel() -> None:
    call("kexec_load", 0, 0, 0, 0)


@attempt
def says_what_control_alt_delete_does() -> None:
    call("reboot", 0xFEE1DEAD, 672274793, 0)


@attempt
def gets_at_the_ports_of_the_machine() -> None:
    call("iopl", 3)


@attempt
def handles_faults_itself() -> None:
    call("userfaultfd", 0)


@attempt
def compares_what_processes_have() -> None:
    call("kcmp", os.getpid(), os.getpid(), 1, 0, 0)


@attempt
def gets_another_personality() -> None:
    call("personality", 0x0400000)


@attempt
def gives_a_file_away() -> None:
    path = Path(target, "given")
    path.touch()
    os.chown(path, 1, 1)


@attempt
def becomes_another_user() -> None:
    if (child := os.fork()) == 0:
        try:
            os.setuid(1)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    if (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
        raise OSError(status, "")


@attempt
def writes_past_the_cards_of_the_network() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@attempt
def sends_raw() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attempt
def talks_to_the_hypervisor() -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@attempt
def uses_the_ciphers_of_the_kernel() -> None:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)


@attempt
def reaches_a_port_of_the_machine() -> None:
    socket.create_connection(("127.0.0.1", port), timeout=2)


@attempt
def reaches_an_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0{abstract}")


@attempt
def listens_on_the_port_that_is_taken_and_is_heard_outside() -> None:
    """It has a network of its own, so the port is free there."""
    socket.create_server(("0.0.0.0", port))
    raise OSError(errno.ENETUNREACH, "")


@attempt
def writes_to_etc() -> None:
    Path("/etc/storlab-attack").touch()


@attempt
def writes_outside() -> None:
    Path(other, "mine").touch()


def main() -> None:
    outcomes: dict[str, str] = {}
    skipped = platform.machine() != "x86_64"
    for name, function in ATTEMPTS.items():
        try:
            if not (skipped and "call" in function.__code__.co_names):
                function()
                outcomes[name] = "done"
        except (OSError, subprocess.CalledProcessError) as error:
            outcomes[name] = errno.errorcode.get(getattr(error, "errno", None) or 0, str(error))
    print(json.dumps(outcomes))


main()
