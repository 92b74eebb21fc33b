"""``storlab list``, ``schema`` and ``doctor``: what studies are made of, and what this machine has for them."""

import json
from pathlib import Path

import pytest

from storlab.cli.listing import checks_document, doctor, next_step, remedies
from storlab.doctor import CHECKS
from storlab.doctor.machine import Check
from storlab.report.formats.terminal import render_full
from storlab.study.json_schema import json_schema
from study.program import call


def test_the_metrics_of_a_study_that_is_there_are_listed_with_unit_direction_and_source_and_as_json_too() -> None:
    said = call("list", "--metrics", "quick").output
    rows = [line.split() for line in said.splitlines()]
    assert ["create.rate", "1/s", "higher", "mail"] in rows
    assert ["write.amplification", "1", "lower", "storage"] in rows
    assert ["disk.{disk}.writes", "1", "neither", "probe:host-load"] in rows
    listed = json.loads(call("list", "--metrics", "quick", "--json").output)
    wanted = {"metric": "write.bandwidth", "unit": "B/s", "better": "higher", "source": "mail"}
    assert wanted in listed
    ran = call("list", "--metrics", "quik")
    assert ran.status == 2 and "quick" in ran.message


def test_the_list_names_every_study_and_every_part() -> None:
    listed = json.loads(call("list", "--json").output)
    text = call("list").output
    needs = {name: entry["needs"] for name, entry in listed["studies"].items()}
    assert needs == {
        "alignment": ["root"], "kernels": ["virtual machines"], "network-block": ["virtual machines"],
        "quick": ["root"], "quick-directory": [], "queue-depth": [],
        "shared-folder-options": ["virtual machines"], "database-variability": ["root"],
        "shared-folders": ["virtual machines"], "shared-folders-network": ["root", "virtual machines"],
        "vm-backing": ["virtual machines"], "zfs-allocators": ["virtual machines"],
    }  # fmt: skip
    assert "virtual machines" in text
    assert set(listed) == {"studies", "layers", "workloads", "probes"}
    for entries in listed.values():
        for name, entry in entries.items():
            assert name in text
            purpose = entry["title"] if isinstance(entry, dict) else entry
            assert purpose
    assert all(Path(entry["file"]).is_file() for entry in listed["studies"].values())


def test_the_schema_that_is_printed_is_that_of_studies() -> None:
    assert json.loads(call("schema").output) == json_schema()


FOUND = [
    Check("root", "Machine", "ok", "this is root"),
    Check("clock source", "Machine", "warn", "hpet: slow to read, so short latencies look longer", "echo tsc > /sys/x"),
    Check(
        "a name longer than its column", "File systems", "missing", "this kernel has no such file system " * 4,
        "another one",
    ),
]  # fmt: skip


def test_lines_fit_eighty_columns_symbols_tell_the_status_and_remedies_follow_with_what_they_fix() -> None:
    text = render_full(checks_document(FOUND))
    assert max(map(len, text.splitlines())) <= 80
    assert [line[0] for line in text.splitlines() if line[:1] in "✓!✗" and line] == ["✓", "!", "✗"]
    lines = text.splitlines()
    assert lines[lines.index("For clock source:") + 1] == "    echo tsc > /sys/x"
    assert "What would fix the rest" in text
    assert "What would fix" not in render_full(checks_document(FOUND[:1]))


def test_each_remedy_is_given_once_all_packages_in_one_command_that_is_not_broken_into_lines() -> None:
    command = f"apt-get install {' '.join(f'package-{number}' for number in range(20))}"
    text = render_full(checks_document([Check("much", "Machine", "missing", "not installed", command)]))
    assert f"\n    {command}\n" in text
    kernel_image = "apt-get install linux-image-amd64, and boot it"
    found = [
        Check("nbd", "Block devices", "missing", "not in this kernel", kernel_image),
        Check("xfs", "File systems", "missing", "no mkfs.xfs", "apt-get install xfsprogs"),
        Check("qemu-img", "Virtual machines", "missing", "not installed", "apt-get install qemu-utils"),
        Check("qemu-nbd", "Virtual machines", "missing", "not installed", "apt-get install qemu-utils"),
        Check("9p", "Networks", "missing", "not in this kernel", kernel_image),
    ]
    assert remedies(found) == {
        "apt-get install xfsprogs qemu-utils": ["xfs", "qemu-img", "qemu-nbd"],
        kernel_image: ["nbd", "9p"],
    }


def test_it_ends_with_what_this_user_can_run_next() -> None:
    group = "Shipped studies"
    directory = Check("quick-directory", group, "ok", "all 6 cells can run")
    assert next_step([Check("quick", group, "ok", "all 3 cells can run"), directory]) == ["Next: `storlab run quick`"]
    part = Check("quick", group, "warn", "2 of 3 cells can run: no xfs")
    assert next_step([part, directory]) == ["Next: `storlab run quick` (2 of 3 cells can run: no xfs)"]
    refused = Check("quick", group, "missing", "no root privileges")
    why = "`storlab run quick` cannot run here: no root privileges."
    assert next_step([refused, directory]) == [why, "Next: `storlab run quick-directory`"]
    neither = next_step([refused, Check("quick-directory", group, "missing", "fio is not installed")])
    assert neither == [why, "`storlab run quick-directory` cannot run here: fio is not installed."]


def test_json_is_a_list_of_checks(capsys: pytest.CaptureFixture[str]) -> None:
    doctor(json=True)
    found = json.loads(capsys.readouterr().out)
    assert {tuple(check) for check in found} == {("name", "group", "status", "says", "remedy")}
    assert {check["status"] for check in found} <= {"ok", "warn", "missing"}
    assert len({(check["group"], check["name"]) for check in found}) == len(found)


def test_the_documentation_names_every_group() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/reference/doctor.md").read_text("utf-8")
    groups = {*CHECKS, "Runs", "Shipped studies"}
    assert {group for group in groups if f"`{group}`" not in text} == set()
