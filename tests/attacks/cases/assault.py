"""A load that tries what no load may: prints, as JSON, what came of each attempt, "done" or the error's name.

Arguments: a directory of a file system that the study doesn't name, a process outside, an abstract socket, a port, a
folder with a file and a socket of root's, the target.
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
roots, target = Path(sys.argv[5]), sys.argv[6]
libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[], object]] = {}

# Numbers of asm/unistd.h; others have others, and are not tried there.
X86 = {
    "ptrace": 101, "syslog": 103, "setdomainname": 171, "acct": 163, "adjtimex": 159, "settimeofday": 164,
    "swapon": 167, "reboot": 169, "sethostname": 170, "iopl": 172, "init_module": 175, "quotactl": 179,
    "pivot_root": 155, "mount": 165, "umount2": 166, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "ioprio_set": 251, "unshare": 272, "perf_event_open": 298,
    "fanotify_init": 300, "prlimit64": 302, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
    "finit_module": 313, "bpf": 321, "userfaultfd": 323, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "pidfd_getfd": 438, "mount_setattr": 442, "clone": 56, "clone3": 435, "personality": 135, "kcmp": 312,
    "io_uring_setup": 425,
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
def counts_the_whole_machine() -> None:
    call("perf_event_open", ctypes.create_string_buffer(struct.pack("II", 1, 112).ljust(112, b"\0"), 112), -1, 0, -1, 0)


@attempt
def swaps_to_its_target() -> None:
    path = Path(target, "swap-of-a-load")
    path.write_bytes(bytes(1024**2))
    path.chmod(0o600)
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    call("swapon", bytes(path), 0)


@attempt
def has_a_child_that_is_root_of_a_namespace() -> None:
    if call("clone", 0x10000000 | 17, 0, 0, 0, 0) == 0:
        os._exit(0)


@attempt
def has_one_by_the_new_call() -> None:
    if call("clone3", struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64) == 0:
        os._exit(0)


@attempt
def sets_the_clock() -> None:
    now = struct.pack("qq", 1, 0)
    call("clock_settime", 0, now)


@attempt
def adjusts_the_clock() -> None:
    call("adjtimex", ctypes.create_string_buffer(struct.pack("I", 0x4000).ljust(256, b"\0"), 256))


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
def listens_on_the_port_that_is_taken_and_is_heard_outside() -> None:
    """It has a network of its own, so the port is free there."""
    socket.create_server(("0.0.0.0", port))
    raise OSError(errno.ENETUNREACH, "")


@attempt
def opens_a_disk_of_the_machine() -> None:
    disks = [path for path in Path("/dev").rglob("*") if path.is_block_device()]
    if not disks:
        raise FileNotFoundError(errno.ENOENT, "")
    os.close(os.open(disks[0], os.O_RDONLY))


@attempt
def sets_the_kernel() -> None:
    setting = Path("/proc/sys/vm/swappiness")
    setting.write_text(setting.read_text())


@attempt
def is_root() -> None:
    if os.getuid() != 0 and os.getgid() != 0 and not os.getgroups():
        raise PermissionError(errno.EPERM, "")


# Each by one call.
ATTEMPTS |= {
    "trims_a_file_system": lambda: ioctl_on_other(0xC0185879, struct.pack("QQQ", 0, 2**63, 0)),
    "shuts_a_file_system_down": lambda: ioctl_on_other(0x8004587D, struct.pack("I", 1)),
    "sets_the_label_of_a_file_system": lambda: ioctl_on_other(0x41009432, b"mine".ljust(256, b"\0")),
    "loads_a_program_into_the_kernel": lambda: call("bpf", 5, ctypes.create_string_buffer(128), 128),
    "names_the_machine": lambda: call("sethostname", b"evil", 4),
    "names_the_domain": lambda: call("setdomainname", b"evil", 4),
    "limits_another_process": lambda: call("prlimit64", victim, resource.RLIMIT_NOFILE, struct.pack("QQ", 7, 7), 0),
    "binds_another_process_to_a_cpu": lambda: os.sched_setaffinity(victim, {0}),
    "makes_another_process_slow": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "makes_the_io_of_another_process_slow": lambda: call("ioprio_set", 1, victim, 3 << 13),
    "signals_another_process": lambda: os.kill(victim, 0),
    "traces_another_process": lambda: call("ptrace", 16, victim, 0, 0),
    "sees_another_process": lambda: Path(f"/proc/{victim}").stat(),
    "reads_the_environment_of_another_process": lambda: Path(f"/proc/{victim}/environ").read_bytes(),
    "looks_into_the_root_of_another_process": lambda: list(Path(f"/proc/{victim}/root/").iterdir()),
    "takes_a_descriptor_of_another_process": lambda: call("pidfd_getfd", os.pidfd_open(victim), 0, 0),
    "mounts": lambda: call("mount", b"none", target.encode(), b"tmpfs", 0, 0),
    "unmounts": lambda: call("umount2", b"/dev", 2),
    "mounts_by_the_new_calls": lambda: call("fsopen", b"tmpfs", 0),
    "clones_a_mount": lambda: call("open_tree", -100, b"/", 1),
    "changes_a_mount": lambda: call("mount_setattr", -100, b"/", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32),
    "pivots": lambda: call("pivot_root", target.encode(), target.encode()),
    "changes_its_root": lambda: os.chroot(target),
    "gets_mounts_of_its_own": lambda: call("unshare", 0x00020000),
    "becomes_root_of_a_namespace": lambda: call("unshare", 0x10000000),
    "enters_a_namespace": lambda: call("setns", os.open("/proc/1/ns/uts", os.O_RDONLY), 0),
    "makes_a_device": lambda: os.mknod(f"{target}/node", 0o60600, os.makedev(7, 0)),
    "opens_a_file_by_its_handle": lambda: call("open_by_handle_at", -100, ctypes.create_string_buffer(64), 0),
    "says_what_takes_core_files": lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/bin/false"),
    "sends_a_magic_key": lambda: Path("/proc/sysrq-trigger").write_text("h"),
    "reads_the_log_of_the_kernel": lambda: call("syslog", 3, ctypes.create_string_buffer(64), 64),
    "keeps_accounts": lambda: call("acct", f"{target}/acct".encode()),
    "watches_all_files": lambda: call("fanotify_init", 0, 0),
    "adds_a_key": lambda: call("add_key", b"user", b"evil", b"x", 1, -3),
    "asks_for_a_session_of_keys": lambda: call("keyctl", 1, 0),
    "asks_for_quotas": lambda: call("quotactl", 0x80000100, b"/", 0, 0),
    "loads_a_module": lambda: call("finit_module", 0, b"", 0),
    "loads_a_kernel": lambda: call("kexec_load", 0, 0, 0, 0),
    "says_what_control_alt_delete_does": lambda: call("reboot", 0xFEE1DEAD, 672274793, 0),
    "gets_at_the_ports_of_the_machine": lambda: call("iopl", 3),
    "handles_faults_itself": lambda: call("userfaultfd", 0),
    "compares_what_processes_have": lambda: call("kcmp", os.getpid(), os.getpid(), 1, 0, 0),
    "gets_another_personality": lambda: call("personality", 0x0400000),
    "writes_past_the_cards_of_the_network": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "sends_raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "talks_to_the_hypervisor": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
    "uses_the_ciphers_of_the_kernel": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    "reaches_a_port_of_the_machine": lambda: socket.create_connection(("127.0.0.1", port), timeout=2),
    "reaches_an_abstract_socket": lambda: socket.socket(socket.AF_UNIX).connect(f"\0{abstract}"),
    "opens_what_no_filter_sees": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
    "reads_passwords": lambda: Path("/etc/shadow").read_bytes(),
    "looks_into_the_home_of_root": lambda: list(Path("/root").iterdir()),
    "reads_a_file_of_root_s": lambda: (roots / "file").read_bytes(),
    "connects_to_a_socket_of_root_s": lambda: socket.socket(socket.AF_UNIX).connect(str(roots / "socket")),
    "empties_the_caches_of_the_machine": lambda: Path("/proc/sys/vm/drop_caches").write_text("1"),
    "writes_to_etc": lambda: Path("/etc/storlab-attack").touch(),
    "writes_outside": lambda: Path(other, "mine").touch(),
}


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
