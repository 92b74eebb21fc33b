"""Raw files as ``run-fio-test.sh`` of virtiofs-tests leaves them, with any figures."""

from __future__ import annotations

from collections.abc import Sequence

HEAD = """\
TESTDIR=/mnt/shared/fio/
JOB_FILES=fio-jobs/seqread-psync.job
TEST_NAME={name}
SYSTEMINFO=Linux guest 6.12.0 #1 SMP x86_64
MOUNTPOINT=/mnt/shared tag virtiofs rw,relatime
RUNTIME=20 LOOPS=3 IODEPTH=16 SIZE=4G DIRECT=0 BLOCKSIZE=4K

"""
Rates = tuple[int, int]
"""KiB/s and IOPS."""


def direction(kib: int, iops: int) -> list[str]:
    latencies = ["2", "40", "3.5", "1.0"]
    percentiles = ["50.000000%=190", "99.000000%=209", *["0%=0"] * 18]
    rest = [*latencies, "0", "0", "100.000000%", "0.0", "0.0"]
    return [str(kib * 20), str(kib), str(iops), "20000", *latencies, *latencies, *percentiles, *rest]


def terse(job: str, read: Rates = (0, 0), write: Rates = (0, 0), error: int = 0) -> str:
    fields = ["3", "fio-3.21", job, "0", str(error), *direction(*read), *direction(*write), "9.4%", "89.9%", "21", "0"]
    return ";".join([*fields, *["0"] * (121 - len(fields))])


def ran(job: str, line: str, *messages: str) -> str:
    rw = "randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=16"
    lines = [f"Running: fio --directory=/mnt/shared/fio/ --append-terse fio-jobs/{job}.job", f"{job}: (g=0): rw={rw}"]
    return "\n".join([*lines, "fio-3.21", "Starting 1 process", *messages, line, "", "Run status group 0:", ""])


def refused(job: str) -> str:
    said = "fio: pid=7, err=19/file:engines/mmap.c:118, func=mmap, error=No such device"
    return ran(job, terse(job, error=19), said)


def raw_file(name: str, runs: Sequence[str]) -> str:
    return HEAD.format(name=name) + "".join(runs)
