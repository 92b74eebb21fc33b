"""``storlab crash`` on guests: set-ups and databases that keep their promise, planted liars, pages that are torn."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laboratory import Ended, Laboratory, backing_files, ended, kill, opened, wait_for
from laboratory.guests import qemus
from laboratory.samples import sample
from storlab.tools.log_writes import Flag, read_log

pytestmark = pytest.mark.needs("guests")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FAILS = """factors.set-up.does-not-mount=[
  { layer = "file", size = "64M" }, { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" }, { layer = "mount", options = "data=journal,delalloc" },
]"""
BTRFS = """factors.set-up.btrfs=[
  { layer = "file", size = "256M" }, { layer = "virtio-blk" }, { layer = "mkfs", type = "btrfs" }, { layer = "mount" },
]"""
WHOLE = "all that was logged, replayed, is the image that the guest left"
ORDERED = "cuts that lose nothing that was completed recover"
PROTECTED = "protected pages, torn at 512 bytes, recover"
WHOLE_PAGES = "unprotected pages recover where only whole ones are lost"
TORN = "unprotected pages, torn at 512 bytes, break"
TEN = ("--moments", "10")
NONE_OF_TEN = [0.0, 0.3085]
"""The exact interval: its upper limit is 1 - 0.025 ** (1 / 10)."""


class CrashLaboratory(Laboratory):
    """A crash check keeps its run in a folder of its own folder."""

    @property
    def check(self) -> Path:
        return self.folder / "check"

    @property
    def out(self) -> Path:
        return self.check / "run"

    def arguments(self, example: str, *more: str) -> list[str]:
        study, scratch = str(EXAMPLES / example), f"scratch={self.scratch}"
        return ["crash", study, "--out", str(self.check), "--seed", "7", "--set", scratch, *more]

    def found(self) -> dict[str, dict[str, Any]]:
        """The last level of each set-up → what was found."""
        result = json.loads((self.check / "crash.json").read_text())
        return {[*each["levels"].values()][-1]: each for each in result["set_ups"]}


@pytest.fixture(scope="module")
def set_ups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CrashLaboratory, Ended]]:
    with opened(CrashLaboratory(tmp_path_factory.mktemp("set-ups"))) as lab:
        more = ("--set", FAILS, "--set", BTRFS)
        yield lab, lab.storlab(*lab.arguments("power-cut.toml", "--keep", *TEN, *more), timeout=550)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[CrashLaboratory]:
    with opened(CrashLaboratory(tmp_path)) as lab:
        yield lab


def controls(found: dict[str, Any]) -> dict[str, bool]:
    return {control["name"]: control["passed"] for control in found["controls"]}


@pytest.mark.parametrize("name", ["xfs", "ext4-scsi", "btrfs"])
def test_a_set_up_that_keeps_its_promise_survives_every_cut(set_ups: tuple[CrashLaboratory, Ended], name: str) -> None:
    """Btrfs never writes in place."""
    lab, said = set_ups
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True}, said
    assert (len(found["cuts"]), found["broken"]) == (10, 0)
    assert found["interval"] == pytest.approx(NONE_OF_TEN, abs=1e-4)
    assert found["acknowledged"] > (10 if name == "btrfs" else 20) and found["at_risk"] > 0
    commits = [cut["acknowledged"] for cut in found["cuts"]]
    assert commits == sorted(commits) and commits[-1] > 0
    if name != "btrfs":
        assert found["flushes"] > found["acknowledged"]  # of the file, and of its directory


@pytest.mark.parametrize("name", ["unsafe", "nobarrier"])
def test_a_liar_is_caught(set_ups: tuple[CrashLaboratory, Ended], name: str) -> None:
    lab, said = set_ups
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True}, said
    assert found["broken"] >= 8
    assert "lost" in {cut["broken"]["kind"] for cut in found["cuts"] if cut["broken"]}
    assert name in said.stdout and "acknowledged" in said.stdout


def test_what_it_takes_to_look_again_is_kept_and_what_fails_is_not_checked(
    set_ups: tuple[CrashLaboratory, Ended],
) -> None:
    lab, _ = set_ups
    number = lab.found()["unsafe"]["cell"]
    kept = lab.check / "set-ups" / f"{number:04}"
    log = read_log(kept / "write.log")
    flushes = [entry for entry in log.entries if entry.flags & Flag.FLUSH]
    assert log.entries and not flushes  # none reached the log: that is the lie
    assert (kept / "broken.img").stat().st_size == (kept / "start.img").stat().st_size == 64 * 2**20
    rows = (kept / "acknowledged.csv").read_text().splitlines()
    assert rows[0] == "entries,commit" and int(rows[-1].split(",")[1]) == lab.found()["unsafe"]["acknowledged"]
    lab, said = set_ups
    found = lab.found()["does-not-mount"]
    assert found["cuts"] == [] and not found["believed"]
    assert "mount" in found["failure"]
    assert said.status == 3


REWRITING = """
import mmap, os, threading
SIZE = 1 << 18
contents = b"a" * SIZE, b"b" * SIZE
disk = os.stat("{target}").st_dev
with open(f"/sys/dev/block/{{os.major(disk)}}:{{os.minor(disk)}}/queue/stable_writes") as told:
    assert told.read() == "1\\n"
for number in range(40):
    file = os.open(f"{target}/pages-{{number}}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, SIZE)
    pages = mmap.mmap(file, SIZE)
    pages[:] = contents[0]
    writing = threading.Thread(target=os.fdatasync, args=[file])
    writing.start()
    while writing.is_alive():
        for content in contents: pages[:] = content
"""
"""What was changed while it was written is not written again before the power fails: the kernel takes its time."""


def test_pages_that_change_while_they_are_written_are_logged_as_they_reach_the_disk(lab: CrashLaboratory) -> None:
    """As those of databases do, for which nobody waits without being told to."""
    rewriting = f"workload.pages.command.argv={json.dumps(['python3', '-c', REWRITING])}"
    more = ("--set", rewriting, "--set", 'workload.pages.on=["vm"]')
    said = lab.storlab(*lab.arguments("power-cut.toml", "--only", "set-up=xfs", "--moments", "1", *more), timeout=400)
    assert controls(lab.found()["xfs"]) == {WHOLE: True, ORDERED: True}, said


def test_pages_break_just_where_they_must(lab: CrashLaboratory) -> None:
    said = lab.storlab(*lab.arguments("torn-pages.toml", *TEN, "--json"), timeout=400)
    result = json.loads(said.stdout)
    protected, torn = result["set_ups"]
    assert controls(protected) == {WHOLE: True, ORDERED: True, PROTECTED: True}
    assert protected["broken"] == 0 and protected["believed"]
    assert controls(torn) == {WHOLE: True, ORDERED: True, WHOLE_PAGES: True, TORN: True}
    assert {cut["broken"]["kind"] for cut in torn["cuts"] if cut["broken"]} <= {"torn"}
    assert result == json.loads((lab.check / "crash.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(lab: CrashLaboratory, number: signal.Signals) -> None:
    """While a cut is looked at, or, where that is missed, while the guest works."""
    process = lab.start(*lab.arguments("torn-pages.toml", "--only", "doublewrite=true", "--moments", "1000"))
    wait_for(process, lambda: not qemus(lab) and any("cut.img" in each for each in backing_files() if lab._ours(each)))
    kill(process, number)
    status = ended(process).status
    if number == signal.SIGKILL:
        assert lab.storlab("clean", lab.out).status == 0
    else:
        assert status == 130


by_server = pytest.mark.parametrize("server", ["mariadb", "postgresql"])  # which different workers can run
SMALL = ("--moments", "3", "--set", "workload.commits.sql-ledger.runtime=4s")
NONE_OF_THREE = [0.0, 0.7076]
"""The exact interval: its upper limit is 1 - 0.025 ** (1 / 3)."""
MARIADB = '{ layer = "mariadb", pool = "16M", log_size = "16M" }'
PUT_OFF = '{ layer = "postgresql", pool = "16M", flush_at_commit = false, settings = { wal_writer_delay = "10s" } }'


def checked(*arguments: str, liars: str = "") -> tuple[dict[str, dict[str, Any]], Ended]:
    """What was found of each set-up, and what was said. The servers' own users may pass through its folder."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        with opened(CrashLaboratory(Path(name))) as lab:
            (lab.folder / "liars.toml").write_text(liars)
            study = str(lab.folder / "liars.toml") if liars else "databases-power-cut.toml"
            said = lab.storlab(*lab.arguments(study, *arguments), timeout=1100)
            return lab.found(), said


@pytest.mark.timeout(1200)
@by_server
def test_a_durable_database_that_mends_its_pages_keeps_all_and_one_that_does_not_is_torn(server: str) -> None:
    """It survives where whole pages go."""
    found, said = checked(*SMALL, "--only", f"server={server},{server}-unprotected")
    protected, unprotected = found[server], found[f"{server}-unprotected"]
    assert controls(protected) == {WHOLE: True, ORDERED: True, PROTECTED: True}, protected["controls"]
    assert protected["acknowledged"] > 20 and protected["at_risk"] > 0, said
    assert (len(protected["cuts"]), protected["broken"]) == (3, 0), said
    assert protected["interval"] == pytest.approx(NONE_OF_THREE, abs=1e-4)
    assert controls(unprotected) == {WHOLE: True, ORDERED: True, WHOLE_PAGES: True, TORN: True}, unprotected["controls"]


@pytest.mark.timeout(1200)
def test_a_disk_that_ignores_flushes_loses_transactions() -> None:
    """QEMU ignores those of the guest. Few moments: of a liar nearly each shows it."""
    liars = sample(__file__, "cases/liar.toml", name="unsafe", cache="unsafe", server=MARIADB)
    found, said = checked("--moments", "5", liars=liars)
    assert controls(found["unsafe"]) == {WHOLE: True, ORDERED: True}, said
    assert found["unsafe"]["believed"] and found["unsafe"]["broken"] >= 3, said
    assert said.status == 4


@pytest.mark.timeout(1200)
def test_what_acknowledges_early_is_vouched_for_by_its_durable_twin() -> None:
    """It loses transactions by what it is asked to, and has no control of its own by cuts that lose nothing."""
    liars = sample(__file__, "cases/liar.toml", name="early", cache="none", server=PUT_OFF)
    found, said = checked("--moments", "3", liars=liars)
    early, twin = found["early"], "without flush_at_commit = false"
    assert controls(early) == {WHOLE: True, f"{twin}, {WHOLE}": True, f"{twin}, {ORDERED}": True}, said
    assert early["believed"] and early["kinds"].get("lost", 0) > 0, said
    assert "acknowledged transactions" in early["early"]
    assert said.status == 4
