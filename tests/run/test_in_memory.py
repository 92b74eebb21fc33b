"""A report names loads that measured the page cache, by what reached the disk."""

from __future__ import annotations

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.studies import directory
from storlab.records.derive import derive

BUFFERED = 'fio = { rw = "write", bs = "64k", size = "16M", runtime = "1s", time_based = true OWN }'


@pytest.mark.parametrize(("own", "told"), [("", True), (", direct = 1", False)])
def test_a_report_says_so_of_writes_into_the_page_cache_alone(lab: Laboratory, own: str, told: bool) -> None:
    result = lab.run(directory(BUFFERED.replace("OWN", own)).replace("[probes]", "[probes]\nhost-load = {}"))
    assert result.status == 0, str(result)
    known = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), metric="write.amplification")
    assert known.height == 1, "else this shows nothing"
    assert ("had reached the disk" in " ".join(result.stdout.split())) == told
