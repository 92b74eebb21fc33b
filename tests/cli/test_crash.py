"""``storlab crash`` and power cuts in a study: refused before anything is set up, and shown with their interval."""

from dataclasses import replace
from pathlib import Path

import pytest

from laboratory.samples import sample
from laboratory.studies import POWER_CUTS
from storlab.cli.crash import document, status_of
from storlab.crash.results import Broken, Control, CrashResult, Cut, SetUp
from storlab.report.formats.terminal import render_text
from study.program import call

GUEST = sample(__file__, "cases/crash.toml")
LEDGER = 'ledger = { runtime = "1s" }'
MOUNTED = '{ layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }'
FILE = '{ layer = "file", size = "64M" }'
FIO = 'fio = { rw = "write", size = "1M" }'
MISTAKES = {
    "no load of this study can tell what a power cut took: add one that commits": {"primary": "bandwidth", "load": FIO},
    'this one has none: write kind = "vm"': {"stack": '{ layer = "directory" }'},
    "layer zpool: nothing here can recover it": {
        "stack": f'{FILE}, {{ layer = "virtio-blk" }}, {{ layer = "zpool" }}, {{ layer = "zfs" }}'
    },
    "logs what is written to a raw image file: write-log: layer write-log: the image is a qcow2 file": {
        "stack": f'{{ layer = "qcow2", size = "64M" }}, {MOUNTED}'
    },
    "logs what is written to a raw image file: write-log: layer write-log takes a File, but layer loop gives a Disk": {
        "stack": f'{FILE}, {{ layer = "loop" }}, {MOUNTED}'
    },
    "logs images that are made on this machine, and its disk comes from store: leave from out": {
        "stack": MOUNTED,
        "more": f"[nodes.store]\nstack = [{FILE}]\n",
        "keys": 'from = "store"',
    },
    "follows one load on one node": {"load": LEDGER, "more": f"[workload.again]\non = ['vm']\n{LEDGER}"},
    "in a crash check all loads run in virtual machines, and host is none": {
        "more": f'[nodes.host]\nkind = "local"\nstack = [{{ layer = "directory" }}]\n[workload.w]\non = ["host"]\n{FIO}'
    },
}


def study(
    folder: Path,
    stack: str = f"{FILE}, {MOUNTED}",
    load: str = LEDGER,
    more: str = "",
    primary: str = "",
    keys: str = "",
) -> str:
    text = GUEST.replace("{stack}", stack).replace("{on}", "vm").replace("{load}", load).replace("{keys}", keys) + more
    path = folder / "study.toml"
    path.write_text(text.replace("commit.rate", primary or "commit.rate"))
    return str(path)


@pytest.mark.parametrize(("message", "keys"), MISTAKES.items(), ids=[*MISTAKES])
def test_what_cannot_be_checked_is_refused(tmp_path: Path, message: str, keys: dict[str, str]) -> None:
    said = call("crash", study(tmp_path, **keys), "--out", str(tmp_path / "out"))
    assert said.status == 2 and message in said.message
    assert not (tmp_path / "out").exists()


def test_a_unit_that_no_disk_has_is_refused(tmp_path: Path) -> None:
    said = call("crash", study(tmp_path), "--unit", "3k")
    assert (said.status, "--unit 3k: a disk writes 512 bytes, 4k or 16k at once" in said.message) == (2, True)


PASSED = (Control("replayed", True),)
GOOD = SetUp(1, {"fs": "ext4"}, 512, controls=PASSED, cuts=[Cut(n, 10 * n, n % 2, n, None) for n in range(1, 31)])
BROKEN = SetUp(
    2, {"fs": "xfs"}, 512, controls=PASSED,
    cuts=[Cut(1, 10, 1, 1, None), Cut(2, 20, 3, 2, Broken("lost", "commit 2 is lost"))],
)  # fmt: skip
DOUBTFUL = SetUp(3, {"fs": "btrfs"}, 512, controls=(Control("replayed", False, "they differ at byte 7"),))
FAILED = SetUp(4, {"fs": "bad"}, 512, failure="mkfs failed")
LACKING = SetUp(5, {"fs": "no"}, 512, failure="no guest image", unsupported=True)


def result(*set_ups: SetUp) -> CrashResult:
    return CrashResult("run", 7, 30, 512, set_ups)


@pytest.mark.parametrize(
    ("set_ups", "status"),
    [
        ((GOOD,), 0), ((GOOD, BROKEN), 4), ((GOOD, DOUBTFUL), 3), ((BROKEN, FAILED), 3), ((GOOD, LACKING), 0),
        ((LACKING,), 3),
    ],
)  # fmt: skip
def test_the_status_says_what_came_of_it(set_ups: tuple[SetUp, ...], status: int) -> None:
    assert status_of(result(*set_ups)) == status


def test_controls_come_first_and_no_set_up_is_called_safe() -> None:
    said = render_text(document(result(GOOD, BROKEN, DOUBTFUL, FAILED, LACKING), Path("out")), 100, full=True)
    assert (
        said
        == """\
What a power cut leaves

Controls ───────────────────────────────────────────────────────────────────────────────────────────
· fs ext4: 1 of 1 passed
· fs xfs: 1 of 1 passed
· fs btrfs: 0 of 1 passed
  FAILED: replayed: they differ at byte 7
· fs bad: not checked: mkfs failed
· fs no: unsupported: no guest image

Power cuts ─────────────────────────────────────────────────────────────────────────────────────────

set-up     moments   at risk   broken       95 % interval
─────────────────────────────────────────────────────────────────────────
fs ext4         30        15   0            0.0% to 11.6%
fs xfs           2         2   1 (1 lost)   1.3% to 98.7%
fs btrfs         -         -   -            not trusted: a control failed
fs bad           -         -   -            not checked
fs no            -         -   -            unsupported

First broken of fs xfs: moment 2: commit 2 is lost

Nothing broke in fs ext4. That does not mean safe: up to 11.6% of the moments may still break it.
At risk: moments at which something was not flushed yet; at the others, a power cut had nothing to
lose.
Seed 7; a disk that writes 512 bytes atomically. Everything is in out; limits of such a check:
docs/explanation/crash-checks.md.
"""
    )


def test_one_that_acknowledges_early_has_a_result_and_says_why() -> None:
    early = replace(BROKEN, early="after 12 entries: commit 3 is lost")
    said = render_text(document(result(early), Path("out")), 200, full=True)
    assert (
        "fs xfs acknowledges early, as its settings allow: a cut that lost nothing broke it, too (after 12 entries: "
        "commit 3 is lost). Its durable twin passed the controls in its place."
    ) in said
    assert status_of(result(early)) == 4


def test_power_cuts_come_after_the_rounds_and_are_refused_first_where_they_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(POWER_CUTS.replace('{ layer = "file", size', '{ layer = "qcow2", size'))
    said = call("run", str(path), "--out", str(tmp_path / "out"))
    assert said.status == 2 and "[crash]: a crash check logs what is written to a raw image file" in said.message
    assert not (tmp_path / "out").exists()
    path.write_text(POWER_CUTS)
    said = call("plan", str(path))
    assert "after the rounds, and not in their time: 2 set-ups once more" in " ".join(said.output.split())
