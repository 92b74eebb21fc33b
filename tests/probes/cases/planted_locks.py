"""Threads that wait for one lock, each of them once: ``planted_locks.py pipe|file|futex N``, more pairs may follow.

``pipe``, ``file``: one thread writes from memory that is not there yet (userfaultfd(2)), and so holds the mutex of the
pipe, or the rwsem of the file, until this program brings the memory. Meanwhile N others write to the same. ``futex``: N
threads wait for a lock of this program's own, which the kernel has no lock for.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

PAGE = 4096
_USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
_API, _REGISTER, _ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04


def until_it_sleeps(thread: threading.Thread) -> None:
    """Until it waits in the kernel, seen five times: a moment's sleep may be for another lock, such as Python's own."""
    seen = 0
    while seen < 5:
        time.sleep(0.005)
        state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]
        seen = seen + 1 if state in "SD" else 0


def held(what: str, many: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fault = libc.syscall(_USERFAULTFD, os.O_CLOEXEC)
    if fault < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(fault, _API, struct.pack("QQQ", 0xAA, 0, 0))
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(fault, _REGISTER, struct.pack("QQQQ", address, PAGE, 1, 0))
    written = os.pipe()[1] if what == "pipe" else os.memfd_create("planted")
    holder = threading.Thread(target=lambda: libc.write(written, ctypes.c_void_p(address), 8))
    holder.start()
    until_it_sleeps(holder)
    others = [threading.Thread(target=os.write, args=(written, b"x")) for _ in range(many)]
    for each in others:
        each.start()
        until_it_sleeps(each)
    fcntl.ioctl(fault, _ZEROPAGE, struct.pack("QQQQ", address, PAGE, 0, 0))
    for each in (holder, *others):
        each.join()


def futex(many: int) -> None:
    lock = threading.Lock()
    lock.acquire()

    def take() -> None:
        with lock:
            pass

    others = [threading.Thread(target=take) for _ in range(many)]
    for each in others:
        each.start()
        until_it_sleeps(each)
    lock.release()
    for each in others:
        each.join()


for what, many in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    futex(int(many)) if what == "futex" else held(what, int(many))
