"""Storlab from its wheel, alone in an environment, used by somebody who is not root and has no checkout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .installed import ROOT, Installed, build, find_uv, installed

SAMPLES = ROOT / "tests" / "importing" / "golden"
VM = """
title   = "A guest"
primary = "write.iops"
stack   = [{ layer = "directory" }]

[nodes.guest]
kind = "vm"

[workload.log]
fio = { rw = "write", size = "1M" }
"""


@pytest.fixture(scope="module")
def storlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    uv = find_uv()
    if uv is None:
        pytest.skip("uv is not installed: `make test` brings it")
    with installed(build("wheel", tmp_path_factory.mktemp("dist")), uv) as made:
        yield made


def test_it_runs_a_study_to_its_report_and_says_what_would_draw_charts(storlab: Installed) -> None:
    quick = ["--set", "size=4M", "--set", "runtime=0.2s", "--rounds", "2"]
    ran = storlab.storlab("run", "quick-directory", "--out", "run", "--quiet", *quick)
    assert ran.returncode == 0, ran.stderr
    note = "charts need Storlab's extra `charts`: install it again as `storlab[charts]`, or as `storlab[all]`"
    assert f"storlab: the report has no charts: {note}\n" in ran.stderr
    page = (storlab.home / "run" / "report.html").read_text()
    assert f"This page has no charts: {note.replace(chr(39), '&#39;')}." in page
    assert "<svg" not in page


def test_doctor_finds_the_agent_and_the_studies(storlab: Installed) -> None:
    looked = storlab.storlab("doctor")
    assert looked.returncode == 0, looked.stderr
    assert "make agent" not in looked.stdout
    assert "quick-directory" in looked.stdout


@pytest.mark.parametrize(("kind", "sample"), [("sysbench", "sysbench-oltp.txt"), ("pcap", "pcap-ethernet.pcap")])
def test_it_imports_results_that_somebody_has(kind: str, sample: str, storlab: Installed) -> None:
    shutil.copy(SAMPLES / sample, storlab.home)
    imported = storlab.storlab("import", kind, sample, "--out", f"{kind}-run")
    assert imported.returncode == 0, imported.stderr
    shown = storlab.storlab("report", f"{kind}-run")
    assert shown.returncode == 0, shown.stderr


def test_virtual_machines_name_the_extra_that_they_need(storlab: Installed) -> None:
    Path(storlab.home / "vm.toml").write_text(VM)
    refused = storlab.storlab("plan", "vm.toml")
    assert refused.returncode == 2
    assert "virtual machines need Storlab's extra `vm`: install it again as `storlab[vm]`" in refused.stderr
    assert "Traceback" not in refused.stderr
