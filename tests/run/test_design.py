"""A study in the words of the analysis."""

from __future__ import annotations

from storlab.run.design import design_of
from storlab.study.study import load_study, parse_study, shipped_studies

STUDY = shipped_studies()["network-block"]


def test_claims_on_levels_that_the_parameters_lack_are_known_to_be_absent() -> None:
    claims = {claim.name: claim for claim in design_of(load_study(STUDY)).claims}
    absent = {claim.absent for claim in claims.values() if claim.absent}
    assert absent == {
        "This run has no sack=false.",
        "This run has no elevator=mq-deadline.",
        "This run has no request=4k.",
    }
    assert not any(claim.absent for claim in design_of(load_study(STUDY, ["profile=full"])).claims)
    only = design_of(load_study(STUDY, only=["transport=nbd,dst"])).claims
    assert "This run has no transport=iscsi and no transport=nvme." in {claim.absent for claim in only}


def test_a_claim_adds_its_comparison_and_the_levels_that_are_fixed() -> None:
    design = design_of(load_study(STUDY, ["profile=full"]))
    (sack,) = (spec for spec in design.planned() if spec.factor == "sack")
    assert (sack.pairs, sack.only, sack.within) == ((("true", "false"),), {"transport": "iscsi"}, False)


STUDY_OF_TWO = """
schema = 1
title = "two"
primary = "iops"
{compare}
stack = [{{ layer = "directory", path = "/tmp" }}]
factors.bs = {{ levels = ["4k", "8k"] }}
workload.load.fio = {{ rw = "randread", bs = "{{bs}}", size = "16M" }}
"""


def test_a_study_compares_its_first_factor_and_with_an_empty_list_nothing() -> None:
    def planned(compare: str) -> int:
        text = STUDY_OF_TWO.format(compare=compare).encode()
        return len(design_of(parse_study(text, "two.toml", lambda name: "")).planned())

    assert (planned(""), planned("compare = []")) == (1, 0)
