"""``storlab crash`` on databases in real guests: protected ones recover, others are torn, liars are caught."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended
from laboratory.guests import needs_guests

from .test_crash_guests import ORDERED, WHOLE, CrashLaboratory, controls, laboratory

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
        yield lab, lab.storlab(*lab.arguments("databases-power-cut.toml", *SMALL), timeout=1400)


@needs_guests
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_a_durable_database_that_mends_its_pages_keeps_all(checked: tuple[CrashLaboratory, Ended], name: str) -> None:
    lab, said = checked
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True, PROTECTED: True}, found["controls"]
    assert found["broken"] == 0 and found["acknowledged"] > 20 and found["at_risk"] > 0, said


@needs_guests
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["mariadb-unprotected", "postgresql-unprotected"])
def test_one_that_does_not_mend_them_is_torn_and_survives_where_whole_pages_go(
    checked: tuple[CrashLaboratory, Ended], name: str
) -> None:
    lab, _ = checked
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True, WHOLE_PAGES: True, TORN: True}, found["controls"]


LIARS = """
schema  = 1
title   = "Planted liars: which of these lose what they acknowledged?"
primary = "commit.rate"

[nodes.vm]
kind   = "vm"
memory = "768M"
stack  = "{set-up}"

[factors.set-up]
"""
UNSAFE = """{name} = [
  {{ layer = "file", size = "512M" }}, {{ layer = "virtio-blk", cache = "{cache}" }},
  {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount", options = "{options}" }}, {server},
]
"""
MARIADB = '{ layer = "mariadb", pool = "16M", log_size = "16M" }'
POSTGRESQL = '{ layer = "postgresql", pool = "16M" }'
EARLY = '{ layer = "postgresql", pool = "16M", flush_at_commit = false, settings = { wal_writer_delay = "10s" } }'
PLANTED = {
    "mariadb-unsafe": ("unsafe", "noatime", MARIADB),  # QEMU ignores the guest's flushes
    "postgresql-unsafe": ("unsafe", "noatime", POSTGRESQL),
    "postgresql-nobarrier": ("none", "nobarrier", POSTGRESQL),  # ext4 sends none
    "postgresql-early": ("none", "noatime", EARLY),
}


@pytest.fixture(scope="module")
def planted() -> Iterator[tuple[CrashLaboratory, Ended]]:
    """Few moments: of a liar nearly each shows it."""
    levels = (UNSAFE.format(name=name, cache=cache, options=options, server=server)
              for name, (cache, options, server) in PLANTED.items())  # fmt: skip
    study = LIARS + "".join(levels) + "[workload.commits]\non = ['vm']\nsql-ledger = { runtime = '4s' }\n"
    for lab in passable():
        path = lab.folder / "liars.toml"
        path.write_text(study)
        yield lab, lab.storlab(*lab.arguments(str(path), "--moments", "8"), timeout=1100)


@needs_guests
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["mariadb-unsafe", "postgresql-unsafe", "postgresql-nobarrier"])
def test_a_disk_or_a_file_system_that_ignores_flushes_loses_transactions(
    planted: tuple[CrashLaboratory, Ended], name: str
) -> None:
    lab, said = planted
    found = lab.found()[name]
    assert controls(found) == {WHOLE: True, ORDERED: True}, said
    assert found["believed"] and found["broken"] >= 6, said


@needs_guests
def test_a_liar_is_caught_by_what_it_acknowledged(planted: tuple[CrashLaboratory, Ended]) -> None:
    lab, said = planted
    liars = [lab.found()[name] for name in PLANTED if name != "postgresql-early"]
    assert "lost" in {kind for found in liars for kind in found["kinds"]}, said


@needs_guests
@pytest.mark.timeout(1200)
def test_one_that_acknowledges_early_has_a_result_for_which_its_durable_twin_vouches(
    planted: tuple[CrashLaboratory, Ended],
) -> None:
    lab, said = planted
    found = lab.found()["postgresql-early"]
    twin = "without flush_at_commit = false"
    assert controls(found) == {WHOLE: True, f"{twin}, {WHOLE}": True, f"{twin}, {ORDERED}": True}, said
    assert found["believed"] and found["kinds"].get("lost", 0) > 0, said
    assert "acknowledged transactions" in found["early"]
    assert said.status == 4
