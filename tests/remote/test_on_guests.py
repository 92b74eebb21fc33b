"""``--on`` and guests: they run on the other machine, from the image that it has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from laboratory import Laboratory
from laboratory.hosts import Hosts
from laboratory.samples import sample
from storlab.images.cache import storlab_cache
from storlab.suites.model import Outcome
from storlab.suites.records.folder import read_suite_run

pytestmark = pytest.mark.needs("guests", "sshd", "ssh")

MOUNTS = """_begin_fstest() { :; }
_begin_fstest auto
mount $TEST_DEV $TEST_DIR && ls -d $TEST_DIR/lost+found && umount $TEST_DIR
"""


def test_a_checkout_goes_along_and_is_run_there_in_a_guest(here: Laboratory, machines: Hosts) -> None:
    lab, cache = here, machines["lab1"].home / ".cache"
    cache.mkdir(exist_ok=True)  # which has the images of this machine, by links: fast
    subprocess.run(["cp", "--archive", "--link", str(storlab_cache()), str(cache)], check=True)
    checkout = lab.folder / "checkout"
    (checkout / "tests" / "own").mkdir(parents=True)
    for name, text in {"check": sample(__file__, "../run/cases/check.sh"), "tests/own/001": MOUNTS}.items():
        (checkout / name).write_text(text)
        (checkout / name).chmod(0o755)
    (checkout / "tests" / "own" / "001.out").write_text("/mnt/test/lost+found\n")
    guest = ("--memory", "512M", "--cpus", "1", "--disk-size", "64M")
    ran = lab.storlab("suite", "check", checkout, "own/001", *guest, "--out", lab.out, "--on", "lab1", timeout=300)
    results = {key[1]: each for key, each in read_suite_run(lab.out).results.items()}
    assert ran.status == 0 and [each.outcome for each in results.values()] == [Outcome.PASS], (ran, results)
    reported = lab.storlab("suite", "report", lab.out, "--on", "lab1")
    assert reported.status == 0 and "1 PASS" in reported.stdout, reported
    shutil.rmtree(cache)
