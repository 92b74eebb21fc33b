"""A study in the words of the analysis."""

from __future__ import annotations

from storlab.run.limits import Limits
from storlab.run.planning.design import design_of, rule_of
from storlab.study.study import Study, load_study, parse_study, shipped_studies

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


SWEEP = """
schema = 1
title = "depths"
primary = "iops"
{compare}
stack = [{{ layer = "directory", path = "/tmp" }}]
[factors]
{factors}
[workload.load.fio]
rw = "{{mode}}"
iodepth = "{{iodepth}}"
bs = "{{bs}}"
size = "16M"
"""
DEPTHS, MODES, SIZES = "iodepth = [1, 2, 4, 8]\n", 'mode = ["randread", "randwrite"]\n', 'bs = ["4k", "64k"]\n'


def swept(factors: str = DEPTHS + MODES + SIZES, compare: str = "", only: tuple[str, ...] = ()) -> Study:
    return parse_study(SWEEP.format(factors=factors, compare=compare).encode(), "s.toml", lambda _: "", only=only)


def one_by_one(study: Study) -> list[tuple[str, dict[str, str], bool]]:
    return [(spec.factor, dict(spec.only), spec.within) for spec in design_of(study).planned()]


def test_a_factor_whose_levels_are_numbers_is_compared_only_where_compare_names_it() -> None:
    rest = 'mode = ["randread"]\nbs = ["4k"]\n'
    assert {factor for factor, *_ in one_by_one(swept())} == {"mode"}
    assert {factor for factor, *_ in one_by_one(swept(compare="compare = [{ factor = 'iodepth' }]"))} == {"iodepth"}
    assert swept().sweeps == ("iodepth",)
    assert swept("iodepth = [1, 8]\n" + rest).sweeps == ()  # one pair is a question
    assert swept(only=("iodepth=1,8",)).sweeps == ("iodepth",)  # what --only leaves out changes no question


def test_what_is_compared_is_compared_over_all_points_of_a_sweep() -> None:
    assert one_by_one(swept()) == [
        ("mode", {"bs": "4k"}, False),
        ("mode", {"bs": "64k"}, False),
        ("mode", {}, False),
    ]
    assert one_by_one(swept(compare="compare = [{ within = true }]")) == [("mode", {}, True)]


def test_a_study_with_nothing_but_sweeps_stops_by_the_intervals_of_its_points() -> None:
    alone = DEPTHS + 'mode = [4096, 8192, 16384]\nbs = ["4k", "64k", "1M"]\n'
    made = parse_study(
        SWEEP.replace('"{{mode}}"', '"read"').format(factors=alone, compare="").encode(), "s", lambda _: ""
    )
    assert one_by_one(made) == []
    rule = rule_of(made, (5, 30))
    assert (rule.until, rule.precision) == ("points", 0.10)
    assert rule_of(made, (5, 30), Limits(until="±3%")).precision == 0.03
    assert rule_of(made, (5, 30), Limits(until="max")).until == "rounds"
    assert rule_of(swept(), (5, 30)).until == "decided"
