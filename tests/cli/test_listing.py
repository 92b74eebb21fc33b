"""``storlab list``: what studies are made of, and which metrics one may have."""

from __future__ import annotations

import json

from study.program import call


def test_the_shipped_studies_and_what_studies_are_made_of_are_listed() -> None:
    listed = json.loads(call("list", "--json").output)
    assert {"quick", "alignment", "vm-backing"} <= set(listed["studies"])
    assert {"zpool", "virtio-blk", "nbd", "9p", "connect"} <= set(listed["layers"])
    assert all(purpose for kind in ("layers", "workloads", "probes") for purpose in listed[kind].values())


def test_the_metrics_of_a_study_are_listed_with_unit_direction_and_source() -> None:
    said = call("list", "--metrics", "quick").output
    rows = [line.split() for line in said.splitlines()]
    assert ["create.rate", "1/s", "higher", "mail"] in rows
    assert ["write.amplification", "1", "lower", "storage"] in rows
    assert ["disk.{disk}.writes", "1", "neither", "probe:host-load"] in rows


def test_they_are_listed_as_json_too() -> None:
    listed = json.loads(call("list", "--metrics", "quick", "--json").output)
    wanted = {"metric": "write.bandwidth", "unit": "B/s", "better": "higher", "source": "mail"}
    assert wanted in listed


def test_metrics_of_a_study_that_is_not_there_are_refused() -> None:
    ran = call("list", "--metrics", "quik")
    assert ran.status == 2
    assert "quick" in ran.message
