"""The chapter "claims": a line each, with the answer, its figure and its reason, in every format."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from storlab.analysis.claims.data import Claim
from storlab.analysis.summary import Summary
from storlab.report.formats import render
from storlab.report.model.claims import claim_lines
from storlab.report.model.input import ReportInput

HOLDS = Claim(
    name="A storm of ACKs: iSCSI takes more than twice as many.",
    said_by="a blog",
    verdict="holds",
    reason="The evidence puts the ratio above 2.",
    metric="acks.per-request",
    source="probe:tcp",
    unit="1",
    left={"transport": "iscsi"},
    right={"transport": "nvme"},
    expected="more than 2×",
    rounds=6,
    value=11.8,
    low=11.2,
    high=12.4,
    confidence=0.98,
)
VALUE = replace(
    HOLDS,
    name="Every two segments",
    verdict="does not hold",
    metric="acks.sent.mss",
    right={},
    expected="from 1.8 to 2.2",
    value=20.0,
    low=19.0,
    high=21.0,
    said_by="",
)
ABSENT = replace(
    HOLDS, name="SACK", verdict="not measured", reason="This run has no sack=false.", value=None, low=None, high=None
)
OPEN = replace(
    HOLDS, name="<b>open</b> | x", verdict="undecided", reason="3 rounds of at least 5.", low=None, high=None
)
ALL = (HOLDS, VALUE, ABSENT, OPEN)


def given(*claims: Claim) -> ReportInput:
    return ReportInput(Summary("t", "acks", 0.95, 6, "Done.", claims=claims))


def test_a_line_has_claim_answer_figure_and_reason() -> None:
    said = [line.sentence for line in claim_lines(given(*ALL).summary)]
    assert said == [
        "A storm of ACKs: iSCSI takes more than twice as many: holds. acks.per-request, iscsi ÷ nvme: 11.8× "
        "(11.2× to 12.4×, 6 rounds); claimed: more than 2×. The evidence puts the ratio above 2.",
        "Every two segments: does not hold. acks.sent.mss, transport=iscsi: 20.0 (19.0 to 21.0, 6 rounds); "
        "claimed: from 1.8 to 2.2. The evidence puts the ratio above 2.",
        "SACK: not measured. acks.per-request, iscsi ÷ nvme; claimed: more than 2×. This run has no sack=false.",
        "<b>open</b> | x: undecided. acks.per-request, iscsi ÷ nvme: 11.8× (no interval yet, 6 rounds); "
        "claimed: more than 2×. 3 rounds of at least 5.",
    ]


def test_levels_that_both_sides_share_stand_behind() -> None:
    claim = replace(HOLDS, left={"t": "nbd", "sack": "true"}, right={"t": "nbd", "sack": "false"})
    assert "sack=true ÷ sack=false with t=nbd" in claim_lines(given(claim).summary)[0].figure


@pytest.mark.parametrize("name", ["text", "md", "adoc", "html"])
def test_every_report_has_the_chapter(name: str) -> None:
    text = render(given(*ALL), name)
    flat = " ".join(text.split())
    assert "Claims" in text
    for word in ("holds", "does not hold", "not measured", "undecided"):
        assert word in flat
    assert "Source: a blog." in flat
    assert "<b>open</b>" not in text or name in ("text", "adoc")
    assert "Claims" not in render(given(), name)


def test_json_has_every_field() -> None:
    first = json.loads(render(given(*ALL), "json"))["claims"][0]
    assert (first["verdict"], first["value"], first["confidence"]) == ("holds", 11.8, 0.98)


def test_csv_has_a_row_for_each() -> None:
    rows = [row for row in csv.DictReader(render(given(*ALL), "csv").splitlines()) if row["kind"] == "claim"]
    storm, value, absent, _ = rows
    assert (storm["factor"], storm["a"], storm["b"], storm["ratio"]) == ("transport", "iscsi", "nvme", "11.8")
    assert (storm["verdict"], storm["part"], storm["confidence"]) == ("holds", "more than 2×", "0.98")
    assert (storm["reason"], storm["warnings"]) == (HOLDS.name, HOLDS.reason)
    assert (value["factor.transport"], value["value"], value["ratio"], value["factor"]) == ("iscsi", "20.0", "", "")
    assert (absent["verdict"], absent["ratio"]) == ("not measured", "")
