"""``storlab crash`` on databases in real guests: protected ones recover, others are torn, liars are caught."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from laboratory import Ended, opened
from laboratory.samples import sample

from .test_crash_guests import ORDERED, PROTECTED, TORN, WHOLE, WHOLE_PAGES, CrashLaboratory, controls

pytestmark = [pytest.mark.needs("guests"), pytest.mark.timeout(1200)]

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


def test_a_disk_that_ignores_flushes_loses_transactions() -> None:
    """QEMU ignores those of the guest. Few moments: of a liar nearly each shows it."""
    liars = sample(__file__, "cases/liar.toml", name="unsafe", cache="unsafe", server=MARIADB)
    found, said = checked("--moments", "5", liars=liars)
    assert controls(found["unsafe"]) == {WHOLE: True, ORDERED: True}, said
    assert found["unsafe"]["believed"] and found["unsafe"]["broken"] >= 3, said
    assert said.status == 4


def test_what_acknowledges_early_is_vouched_for_by_its_durable_twin() -> None:
    """It loses transactions by what it is asked to, and has no control of its own by cuts that lose nothing."""
    liars = sample(__file__, "cases/liar.toml", name="early", cache="none", server=PUT_OFF)
    found, said = checked("--moments", "3", liars=liars)
    early, twin = found["early"], "without flush_at_commit = false"
    assert controls(early) == {WHOLE: True, f"{twin}, {WHOLE}": True, f"{twin}, {ORDERED}": True}, said
    assert early["believed"] and early["kinds"].get("lost", 0) > 0, said
    assert "acknowledged transactions" in early["early"]
    assert said.status == 4
