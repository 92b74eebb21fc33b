"""``storlab crash`` on databases in real guests: protected ones recover, others are torn, liars are caught."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended
from laboratory.guests import needs_guests

from .test_crash_guests import EXAMPLES, ORDERED, WHOLE, CrashLaboratory, controls, laboratory

pytestmark = pytest.mark.slow

SMALL = ("--moments", "10", "--set", "workload.commits.sql-ledger.runtime=4s")
PROTECTED = "protected pages, torn at 512 bytes, recover"
WHOLE_PAGES = "unprotected pages recover where only whole ones are lost"
TORN = "unprotected pages, torn at 512 bytes, break"


def passable() -> Iterator[CrashLaboratory]:
    """In a folder that the servers' own users may pass through, to recover."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        yield from laboratory(Path(name))


@pytest.fixture(scope="module")
def checked() -> Iterator[tuple[CrashLaboratory, Ended]]:
    for lab in passable():
        yield lab, lab.storlab(*lab.arguments("databases-power-cut.toml", *SMALL), timeout=1100)


@needs_guests
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_a_durable_database_that_mends_its_pages_keeps_all(checked: tuple[CrashLaboratory, Ended], name: str) -> None:
    lab, said = checked
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True, PROTECTED: True}, said
    assert found["broken"] == 0 and found["acknowledged"] > 20 and found["at_risk"] > 0, said


@needs_guests
def test_one_that_does_not_mend_them_is_torn_and_survives_where_whole_pages_go(
    checked: tuple[CrashLaboratory, Ended],
) -> None:
    lab, said = checked
    found = lab.found()["mariadb-unprotected"]
    assert controls(found) == {WHOLE: True, ORDERED: True, WHOLE_PAGES: True, TORN: True}, said


@needs_guests
@pytest.mark.timeout(900)
def test_a_disk_that_ignores_flushes_loses_transactions_of_postgresql() -> None:
    study = (EXAMPLES / "databases-power-cut.toml").read_text()
    liar = study.replace('layer = "virtio-blk"', 'layer = "virtio-blk", cache = "unsafe"')
    assert liar != study
    for lab in passable():
        path = lab.folder / "liar.toml"
        path.write_text(liar)
        said = lab.storlab(*lab.arguments(str(path), *SMALL, "--only", "server=postgresql"), timeout=800)
        found = lab.found()["postgresql"]
        assert controls(found)[WHOLE] and controls(found)[ORDERED], said
        assert found["broken"] >= 8, said
        assert "lost" in {cut["broken"]["kind"] for cut in found["cuts"] if cut["broken"]}, said
