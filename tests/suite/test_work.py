"""A script that takes long is slow where it, or a disk, works, and hangs where nothing does."""

from __future__ import annotations

from storlab.run.suite.work import Work, kernel_complaint, parse_work

CPU = "usage_usec 1500000\nuser_usec 1\n"
DISKS = """\
 254       0 vda 100 0 800 5 20 0 160 9 0 10 14 0 0 0 0 0 0
 254       1 vda1 7 0 800 5 3 0 160 9 0 10 14 0 0 0 0 0 0
   7       0 loop0 1000 0 8 5 1000 0 160 9 0 10 14
 230       0 zd0 1000 0 8 5 1000 0 160 9 0 10 14
"""
ASSERTION = """\
[ 1561.463614]  vdf: vdf1 vdf9
[ 1565.410693] VERIFY3(tx->tx_txg <= spa_final_dirty_txg(os->os_spa)) failed (62 <= 61)
[ 1565.425329] PANIC at dbuf.c:2331:dbuf_dirty()
[ 1565.425506] Showing stack for process 25817
"""


def test_processor_time_and_requests_are_what_was_done() -> None:
    assert parse_work(CPU, DISKS) == Work(1.5, 130)
    assert parse_work("", "") == parse_work("usage_usec x", "\xff 1 2") == Work()


def test_who_computes_or_reads_is_slow_and_who_does_neither_hangs() -> None:
    assert Work(1.0, 100).idle_since(Work(1.0, 100), 45.0)
    assert Work(1.4, 131).idle_since(Work(1.0, 100), 45.0)
    assert not Work(1.5, 100).idle_since(Work(1.0, 100), 45.0)
    assert not Work(1.0, 132).idle_since(Work(1.0, 100), 45.0)


def test_a_failed_assertion_of_zfs_is_named_with_its_place() -> None:
    assert kernel_complaint(ASSERTION) == (
        "ZFS failed an assertion: VERIFY3(tx->tx_txg <= spa_final_dirty_txg(os->os_spa)) failed (62 <= 61), "
        "in dbuf.c:2331:dbuf_dirty()"
    )


def test_a_bug_of_the_kernel_is_named() -> None:
    bug = "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000008\n[    1.0] #PF: x\n"
    assert kernel_complaint(bug) == (
        "the kernel's log has: BUG: kernel NULL pointer dereference, address: 0000000000000008"
    )
    assert kernel_complaint("[    1.0] all is well\n") == ""
