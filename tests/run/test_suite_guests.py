"""``storlab suite`` on real guests with a kernel of one's own, and with a checkout that has a program ``check``."""

from __future__ import annotations

import pytest

from laboratory import Laboratory
from laboratory.guests import own_kernel
from laboratory.samples import sample
from storlab.images.image import find_image
from storlab.records.suite import read_suite_run
from storlab.suite.model import Outcome


@pytest.mark.needs("guests")
def test_each_fresh_guest_boots_a_kernel_of_ones_own_and_a_replay_has_guests_as_before(lab: Laboratory) -> None:
    release = find_image().release
    kernel, modules = own_kernel(lab.folder)
    (lab.folder / "bzImage").symlink_to(kernel)
    lab.environment["XDG_CACHE_HOME"] = str(lab.folder / "cache")
    suite = lab.folder / "suite.toml"
    # The kernel's path is seen from the file.
    suite.write_text(sample(__file__, "cases/own-kernel.toml", modules=modules))
    guest = ("--cpus", "1", "--memory", "640M", "--timeout-scale", "2.5")
    said = lab.storlab("suite", "run", suite, *guest, "--out", lab.out, timeout=300)
    run = read_suite_run(lab.out)
    results = {key[1].rpartition("/")[2]: each for key, each in run.results.items()}
    outcomes = {"first": Outcome.PASS, "crashes": Outcome.CRASHED, "last": Outcome.PASS}
    assert {name: each.outcome for name, each in results.items()} == outcomes, said
    assert (lab.out / results["first"].folder / "stdout").read_text() == f"{release}\n"
    environment = run.asked.environment
    assert environment is not None and environment.image.startswith(f"own-{release}-") and run.others == ()
    assert run.asked.kernel is not None and run.asked.kernel.image == str(lab.folder / "bzImage")
    again = lab.folder / "again"
    said = lab.storlab("suite", "run", "--replay", lab.out, "--test", "first", "--out", again, timeout=300)
    asked = read_suite_run(again).asked
    assert said.status == 0 and asked.kernel == run.asked.kernel, said
    assert (asked.cpus, asked.memory, asked.scale) == (1, 640 << 20, 2.5)


# As xfstests: a program that compares what tests print with what they are to print, and keeps what differs.
CHECK = sample(__file__, "cases/check.sh")
_MOUNTS = (
    "[ $MINE = yes ] && mount $TEST_DEV $TEST_DIR && touch $TEST_DIR/f && ls $TEST_DIR | grep f$; umount $TEST_DIR"
)
_BEGIN = "_begin_fstest() { :; }\n_begin_fstest"
CHECKED = {  # with what each is to print
    "own/001": (f"{_BEGIN} auto quick\n{_MOUNTS}\n", "f\n"),
    "own/002": (f"{_BEGIN} auto\necho wrong; echo everything > $seqres.full\n", "right\n"),
    "own/003": (f"{_BEGIN} auto quick\necho no such device > $seqres.notrun\n", ""),
    "own/004": (f"{_BEGIN} dangerous\necho b > /proc/sysrq-trigger\n", ""),
}
CHECK_FILE = sample(__file__, "cases/checkout.toml")


@pytest.mark.needs("guests")
def test_a_checkout_with_a_program_check_runs_test_by_test(lab: Laboratory) -> None:
    folder = lab.folder / "checkout"
    (folder / "tests/own").mkdir(parents=True)
    for name, text in {"check": CHECK, **{f"tests/{name}": test for name, (test, _) in CHECKED.items()}}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name, (_, printed) in CHECKED.items():
        (folder / "tests" / f"{name}.out").write_text(printed)
    suite = lab.folder / "suite.toml"
    suite.write_text(CHECK_FILE)
    said = lab.storlab("suite", "run", suite, "--retries", "1", "--out", lab.out, timeout=300)
    results = {key[1].rpartition("tests/")[2]: each for key, each in read_suite_run(lab.out).results.items()}
    outcomes = {"own/001": Outcome.PASS, "own/002": Outcome.FAIL, "own/003": Outcome.SKIP}
    assert {name: each.outcome for name, each in results.items()} == outcomes, said
    assert results["own/003"].reason == "no such device" and "output mismatch" in results["own/002"].reason
    assert results["own/002"].number == 2 and said.status == 3
    kept = lab.out / results["own/002"].folder
    assert (kept / "002.out.bad").read_text() == "wrong\n" and (kept / "002.full").read_text() == "everything\n"
