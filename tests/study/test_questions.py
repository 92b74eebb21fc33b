"""What a study asks: claims, objectives, and levels of a factor that a parameter, a profile or --set brings."""

from typing import Any

import pytest

from laboratory.samples import sample
from laboratory.studies import parsed
from storlab.base.errors import StudyError
from storlab.run.planning.metrics import foreseen, refuse_unknown_metrics
from storlab.study.questions import Claim, read_expected
from storlab.study.study import Study

HEAD = sample(__file__, "cases/claim.toml")


def study(claim: str, *overrides: str) -> Study:
    return parsed(HEAD + claim, *overrides)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("more", ("more", 1.0)),
        ("equivalent", ("equivalent", 1.0)),
        ("more than 2x", ("more", 2.0)),
        ("less than 0.5 ×", ("less", 0.5)),
    ],
)
def test_what_is_expected_is_read(text: str, expected: tuple[str, float]) -> None:
    assert read_expected(text) == expected


@pytest.mark.parametrize("text", ["", "More", "more than", "more than 2", "less than 0x", "more than 1e3x", "fewer"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"none of: more, less|is not less"):
        read_expected(text)


@pytest.mark.parametrize(("only", "levels"), [((), {"n"}), (("x=more",), {"more"}), (("x=more,n",), {"n", "more"})])
def test_of_levels_with_names_the_usual_ones_are_taken_unless_others_are_asked_for(
    only: tuple[str, ...], levels: set[str]
) -> None:
    usual = '[factors.x]\nlevels = ["n"]\nn = "1M"\nmore = "2M"\n'
    text = HEAD.partition("[[claim]]")[0].replace('size = "1M"', 'size = "{x}"') + usual
    assert {cell.levels["x"] for cell in parsed(text, only=only).cells} == levels


def test_a_claim_may_be_about_a_level_that_only_a_profile_has_or_a_number() -> None:
    claim = 'left = { bs = "64k" }\nright = { bs = "4k" }\nexpect = "more"\n'
    assert [len(study(claim, *chosen).cells) for chosen in ((), ("profile=full",))] == [2, 4]
    (read,) = study(claim, 'sizes=["1M"]').model.claim
    assert (read.left, read.right) == ({"bs": "64k"}, {"bs": "4k"}), "what the file itself has is no mistake"
    (numbered,) = study('at = { bs = 4096 }\nbetween = [1, inf]\nmetric = "write.iops"\n', "sizes=[4096]").model.claim
    assert numbered.at == {"bs": "4096"}


SLO = sample(__file__, "cases/objective.toml")


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
        parsed(f"{SLO}[[slo]]\n{slo}\n")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("factors", "load", "sweeps"),
    [
        (
            "bs = ['4k', '64k', '1M']\niodepth = [1, 4, 16]",
            "bs = '{bs}', iodepth = '{iodepth}'",
            (["iodepth", "bs"], 1),
        ),
        ("bs = ['4k', '64k', '1M']\nat = [1, 4, 16]", "bs = '{bs}', numjobs = '{at}'", (["at", "bs"], 1)),
        ("mix = [0, 65, 100]\nbs = ['4k', '64k', '1M']", "rwmixread = '{mix}', bs = '{bs}'", (["mix", "bs"], 0)),
    ],
)
def test_the_first_sweep_is_one_of_how_much_is_asked_at_once(factors: str, load: str, sweeps: object) -> None:
    text = f"title = 'x'\nstack = [{{ layer = 'directory' }}]\n[factors]\n{factors}\n[workload.w.fio]\nrw = 'randrw'\n"
    found = parsed(f"{text}{load.replace(', ', chr(10))}")
    assert ([*found.sweeps], found.loading) == sweeps


@pytest.mark.parametrize(("heading", "key"), [("[slo]", "slo.below"), ("[[slo]]", "slo[0].below")])
def test_an_objective_is_named_as_it_is_written_with_the_line_of_its_key(heading: str, key: str) -> None:
    text = f'{SLO}{heading}\nmetric = "latency.p99"\n\nbelow = "5parsecs"\n'
    with pytest.raises(StudyError) as refused:
        refuse_unknown_metrics(parsed(text))
    assert str(refused.value).startswith(f's.toml: line {len(text.splitlines())}: {key}: "5parsecs" is not')


def test_a_limit_is_an_amount_in_the_unit_of_its_metric() -> None:
    for limit, said in (("100M", "is not a duration"), ("0s", "must be above 0")):
        text = SLO.replace("primary", f'slo = {{ metric = "latency.p99", below = "{limit}" }}\nprimary')
        with pytest.raises(StudyError, match=said):
            refuse_unknown_metrics(parsed(text))


SIZES = sample(__file__, "cases/sizes.toml")


def sized(text: str = SIZES, *overrides: str) -> Study:
    return parsed(text, *overrides)


def levels(study: Study) -> list[str]:
    return [cell.levels["size"] for cell in study.cells]


def test_a_profile_has_more_levels_and_the_command_line_gives_its_own() -> None:
    assert levels(sized()) == ["4k"]
    assert levels(sized(SIZES, "profile=full")) == ["4k", "8k", "1M"]
    assert levels(sized(SIZES, 'sizes=["2M", "4M"]')) == ["2M", "4M"]
    assert sized().notes == ()
    named = SIZES.replace(
        'levels = "{sizes}"', 'levels = "{sizes}"\n4k = "4096"\nbig = "1G"\n1M = "1048576"\n8k = "8192"'
    )
    named += '[[compare]]\npairs = [["big", "4k"]]\n[[claim]]\nname = "c"\nexpect = "more"\n'
    named += 'left = { size = "big" }\nright = { size = "4k" }\n'
    assert levels(sized(named)) == ["4k"], "what is compared or claimed may be chosen on the command line alone"
    assert levels(sized(named, 'sizes=["big", "4k"]')) == ["big", "4k"]
    assert sized(named).factors[0].levels[0].value == "4096"
    with pytest.raises(StudyError, match=r'--set sizes=\["bog"\]: unknown level "bog" of size; did you mean'):
        sized(named, 'sizes=["bog"]')


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("[]", "levels must be a list of one or more values"),
        ('["4k", "4k"]', 'the level "4k" is listed twice'),
        ('"4k"', "levels must be a list of one or more values, or a parameter that is one"),
        ('[["4k"]]', "parameters.sizes"),
    ],
)
def test_levels_that_cannot_be_are_named_where_they_are_written(sizes: str, said: str) -> None:
    with pytest.raises(StudyError) as raised:
        sized(SIZES.replace('sizes = ["4k"]', f"sizes = {sizes}"))
    assert said in str(raised.value)
    with pytest.raises(StudyError, match="levels must be a list"):
        sized(SIZES.replace('levels = "{sizes}"', 'levels = "{others}"'))


def test_the_way_of_cloning_may_be_a_factor_beside_others() -> None:
    cells = sized(
        """
title = "Cloning"
schema = 1
stack = [{ layer = "directory" }, { layer = "mariadb", clone = "{clone}", doublewrite = "{doublewrite}" }]
factors.clone = ["copy", "reflink"]
factors.doublewrite = [true, false]
workload.load.sysbench = { tables = 1, rows = 10 }
"""
    ).cells
    assert len(cells) == 4


GRID = sample(__file__, "cases/excluded.toml")


def test_combinations_that_are_excluded_are_neither_run_nor_refused_and_leave_no_empty_study() -> None:
    """An impossible pair, as of ``aio = "native"`` and a cached disk, does not refuse the rest."""
    with pytest.raises(StudyError, match="direct"):
        parsed(GRID.replace("[[exclude]]", "[ignored]").partition("[ignored]")[0])
    found = parsed(GRID)
    assert [*map(dict, (cell.levels for cell in found.cells))] == [
        {"engine": "native", "cache": "none", "bs": "4k"},
        {"engine": "threads", "cache": "none", "bs": "4k"},
        {"engine": "threads", "cache": "writeback", "bs": "4k"},
        {"engine": "threads", "cache": "writethrough", "bs": "4k"},
    ]
    assert [cell.number for cell in found.cells] == [1, 2, 3, 4]
    with pytest.raises(StudyError, match="leave no combination"):
        parsed(GRID, only=["engine=native", "cache=writeback"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("[[exclude]]\nengin = 'native'", "exclude[1].engin: unknown factor 'engin'; did you mean 'engine'?"),
        ("[[exclude]]\nengine = ['native', 'treads']", "has no level 'treads'; did you mean 'threads'?"),
        ("[[compare]]\nat = { cache = 'back' }", "compare[0].at.cache: cache has no level 'back'"),
        ("[[compare]]\nfactor = 'bs'\nat = { bs = 4096 }", "compare[0].at.bs: this factor is compared"),
    ],
)
def test_levels_that_are_excluded_or_compared_at_are_those_of_the_study(asked: str, said: str) -> None:
    with pytest.raises(StudyError) as refused:
        parsed(f"{GRID}\n{asked}\n")
    assert said in str(refused.value)


def test_a_comparison_may_be_of_one_load_alone() -> None:
    """Three metrics of three loads are three comparisons, and not three of each load."""
    ties = [("iops", "read.iops"), ("stream", "read.bandwidth"), ("wait", "read.latency.p99")]
    compare = (f"[[compare]]\nat = {{ case = '{case}' }}\nmetrics = ['{metric}']\n" for case, metric in ties)
    study = parsed(sample(__file__, "cases/three-loads.toml") + "".join(compare))
    refuse_unknown_metrics(study)
    asked = [(item.question.metric, item.question.within) for item in foreseen(study, {}) if not item.problem]
    assert asked == [(metric, {"case": case}) for case, metric in ties]


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ({"metric": "sync.latency.p99", "below": "10ms"}, "sync.latency.p99 below 10ms"),
        ({"at": {"fs": "xfs"}, "between": [1, 2]}, "iops, fs=xfs between 1 and 2"),
        (
            {"left": {"fs": "xfs"}, "right": {"fs": "ext4"}, "expect": "more than 2x"},
            "iops, fs=xfs against fs=ext4 more than 2x",
        ),
        ({"name": "It is fast.", "above": 1}, "It is fast."),
    ],
)
def test_a_claim_without_a_name_is_called_what_it_says(keys: dict[str, Any], title: str) -> None:
    assert Claim.model_validate(keys).title("iops") == title
