"""What a study asks: claims are read, and may be about levels that other parameters bring."""

from __future__ import annotations

import pytest

from storlab.errors import StudyError
from storlab.run.planning.metrics import refuse_unknown_metrics
from storlab.study.questions import Expected, read_expected
from storlab.study.study import Study, parse_study

HEAD = """
title = "t"
stack = [{ layer = "directory" }]
[parameters]
sizes = ["4k"]
[profiles.full]
sizes = ["4k", "64k"]
[factors.bs]
levels = "{sizes}"
[factors]
mode = ["a", "b"]
[workload.load]
fio = { rw = "write", size = "1M", bs = "{bs}" }
[[claim]]
name = "Larger is faster"
"""


def study(claim: str, *overrides: str) -> Study:
    def read(name: str) -> str:
        raise ValueError(name)

    return parse_study((HEAD + claim).encode(), "s.toml", read, overrides)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("more", Expected("more")),
        ("equivalent", Expected("equivalent")),
        ("more than 2x", Expected("more", 2.0)),
        ("less than 0.5 ×", Expected("less", 0.5)),
    ],
)
def test_what_is_expected_is_read(text: str, expected: Expected) -> None:
    assert read_expected(text) == expected


@pytest.mark.parametrize("text", ["", "More", "more than", "more than 2", "less than 0x", "more than 1e3x", "fewer"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"none of: more, less|is not less"):
        read_expected(text)


def test_a_claim_may_be_about_a_level_that_only_a_profile_has() -> None:
    claim = 'left = { bs = "64k" }\nright = { bs = "4k" }\nexpect = "more"\n'
    assert [len(study(claim, *chosen).cells) for chosen in ((), ("profile=full",))] == [2, 4]
    assert study(claim, 'sizes=["1M"]').model.claim[0].differing == ["bs"], "what the file itself has is no mistake"


def test_levels_that_are_numbers_may_be_written_as_numbers() -> None:
    (claim,) = study('at = { bs = 4096 }\nbetween = [1, inf]\nmetric = "write.iops"\n').model.claim
    assert claim.at == {"bs": "4k"}


SLO = """
title = "x"
stack = [{ layer = "directory" }]
primary = "iops"
[factors]
iodepth = [1, 2, 4]
mode = ["randread", "randwrite"]
[workload.load.fio]
rw = "{mode}"
iodepth = "{iodepth}"
size = "1M"
"""


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ('metric = "latency.p99"', 'write either below = "5ms" or above = 1000'),
        ('metric = "latency.p99"\nbelow = 0', "the limit is 0; it must be above 0"),
        ('metric = "latency.p99"\nbelow = "5ms"\nfactor = "iodept"', "did you mean"),
        ('metric = "latency.p99"\nbelow = "5ms"\nfactor = "mode"', "the levels of mode are not numbers"),
    ],
)
def test_an_objective_that_cannot_be_answered_is_refused_with_its_place(slo: str, said: str) -> None:
    with pytest.raises(StudyError, match="slo") as refused:
        parse_study(f"{SLO}[[slo]]\n{slo}\n".encode(), "slo.toml", lambda _: "")
    assert said in str(refused.value)


@pytest.mark.parametrize(("heading", "key"), [("[slo]", "slo.below"), ("[[slo]]", "slo[0].below")])
def test_an_objective_is_named_as_it_is_written_with_the_line_of_its_key(heading: str, key: str) -> None:
    text = f'{SLO}{heading}\nmetric = "latency.p99"\n\nbelow = "5parsecs"\n'
    with pytest.raises(StudyError) as refused:
        refuse_unknown_metrics(parse_study(text.encode(), "slo.toml", lambda _: ""))
    assert str(refused.value).startswith(f'slo.toml: line {len(text.splitlines())}: {key}: "5parsecs" is not')


def test_a_limit_is_an_amount_in_the_unit_of_its_metric() -> None:
    for limit, said in (("100M", "is not a duration"), ("0s", "must be above 0")):
        text = SLO.replace("primary", f'slo = {{ metric = "latency.p99", below = "{limit}" }}\nprimary')
        with pytest.raises(StudyError, match=said):
            refuse_unknown_metrics(parse_study(text.encode(), "slo.toml", lambda _: ""))
