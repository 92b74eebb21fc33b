"""Suites in guests that boot a kernel of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, needs_root
from laboratory.guests import needs_guests, own_kernel
from run.test_suites import laboratory
from storlab.images.image import find_image
from storlab.records.suite import read_suite_run
from storlab.suite.model import Outcome

pytestmark = pytest.mark.slow

SUITE = """
[guests]
disks = 0
kernel = "{kernel}"
kernel_modules = "{modules}"
[groups.own]
tests = [
    {{ name = "first", run = "uname -r; modprobe loop" }},
    {{ name = "crashes", run = "echo c > /proc/sysrq-trigger; sleep 100" }},
    {{ name = "last", run = "true" }},
]
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path)


@needs_guests
def test_tests_run_on_a_kernel_of_ones_own_and_each_fresh_guest_boots_it(lab: Laboratory) -> None:
    release = find_image().release
    kernel, modules = own_kernel(lab.folder)
    (lab.folder / "bzImage").symlink_to(kernel)
    lab.environment["XDG_CACHE_HOME"] = str(lab.folder / "cache")
    suite = lab.folder / "suite.toml"
    suite.write_text(SUITE.format(kernel="bzImage", modules=modules))  # seen from the file
    said = lab.storlab("suite", "run", suite, "--out", lab.out, timeout=300)
    run = read_suite_run(lab.out)
    results = {key[1].rpartition("/")[2]: each for key, each in run.results.items()}
    assert {name: each.outcome for name, each in results.items()} == {
        "first": Outcome.PASS,
        "crashes": Outcome.CRASHED,
        "last": Outcome.PASS,
    }, said
    assert (lab.out / results["first"].folder / "stdout").read_text() == f"{release}\n"
    environment = run.asked.environment
    assert environment is not None and environment.image.startswith(f"own-{release}-") and run.others == ()
    assert run.asked.kernel is not None and run.asked.kernel.image == str(lab.folder / "bzImage")
    again = lab.folder / "again"
    said = lab.storlab("suite", "run", "--replay", lab.out, "--test", "first", "--out", again, timeout=300)
    assert said.status == 0 and read_suite_run(again).asked.kernel == run.asked.kernel, said


@needs_root
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--rootfs", "/"), "--rootfs goes with a kernel of your own: write --kernel, too"),
        (("--kernel", "/none/bzImage"), "there is no kernel at /none/bzImage"),
        (("--kernel", "/etc/passwd"), "/etc/passwd is no kernel that a guest can boot"),
        (("--kernel", "/vmlinuz", "--here", "x"), "--kernel: with --here, tests run on the kernel"),
        (("--memory", "100M"), "--memory: a guest needs 128M at least to boot"),
        (("--guests", "256", "--memory", "64G"), "256 guests of 64G, and QEMU's own memory, take up 16434G"),
    ],
)
def test_what_no_guest_can_boot_is_a_mistake_of_one_sentence(
    lab: Laboratory, words: tuple[str, ...], says: str
) -> None:
    said = lab.storlab("suite", "run", "zts-sanity", *words, "--out", lab.out)
    assert (said.status, said.stdout) == (2, "") and said.stderr.startswith(f"storlab: {says}"), said
    assert said.stderr.count("\n") == 1 and not lab.out.exists()
