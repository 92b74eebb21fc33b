"""Which tests run where, together, and in which order; and that what they cost is measured."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiers.costs import Costs, merge, read_costs, write_costs
from tiers.fuzzing import enlarge, is_fuzz
from tiers.needs import needs_of, reason_against
from tiers.scheduling import groups, in_order
from tiers.tiers import CHECK_LIMIT, MACHINE_LIMIT, Tier, tier_of

pytest_plugins = ["pytester"]

_CONFTEST = """
import time
import pytest
from tiers import costs, needs, scheduling

def pytest_addoption(parser):
    costs.add_option(parser)

def pytest_configure(config):
    costs.record_if_asked(config)

def pytest_runtest_setup(item):
    needs.skip_unless_met(item)

def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

@pytest.fixture(scope="module")
def dear():
    burn(0.3)
    yield
    burn(0.3)
"""


@pytest.mark.parametrize(
    ("test", "needs", "cost", "tier"),
    [
        ("tests/a.py::one", [], 0.0, Tier.CHECK),
        ("tests/a.py::one", ["tcpdump"], CHECK_LIMIT, Tier.CHECK),
        ("tests/a.py::one", [], CHECK_LIMIT + 0.1, Tier.TEST),
        ("tests/a.py::one", ["root"], 0.0, Tier.TEST),
        ("tests/a.py::one", ["mysql"], MACHINE_LIMIT, Tier.TEST),
        ("tests/a.py::one", ["root"], MACHINE_LIMIT + 0.1, Tier.GUESTS),
        ("tests/a.py::one", ["guests", "root"], 0.0, Tier.GUESTS),
        ("tests/a.py::one", ["browser"], 0.0, Tier.GUESTS),
        ("tests/a.py::one", ["packages"], 0.0, Tier.GUESTS),
        ("tests/tour/a.py::one", ["guests"], MACHINE_LIMIT + 0.1, Tier.TEST),
    ],
)
def test_a_tests_tier_follows_from_what_it_needs_and_costs(
    test: str, needs: list[str], cost: float, tier: Tier
) -> None:
    assert tier_of(test, needs, cost) == tier


def test_what_shares_a_set_up_is_one_group_and_whoever_shares_nothing_is_in_none() -> None:
    found = groups({"a": ["x"], "b": ["y"], "c": ["x", "y"], "d": ["z"], "e": []})
    assert found["a"] == found["b"] == found["c"] != found["d"] and "e" not in found


def test_the_dearest_group_is_first_with_its_fixtures_and_in_its_own_order() -> None:
    costs = Costs({"cheap": 1.0, "two": 0.1, "one": 0.2, "dear": 2.0}, {"fixture": 5.0})
    shared: dict[str, set[str]] = {"cheap": set(), "one": {"fixture"}, "dear": set(), "two": {"fixture"}}
    assert in_order({"one": "g", "two": "g"}, costs, shared) == ["one", "two", "dear", "cheap"]


def test_costs_are_written_in_order_without_trifles_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    assert read_costs(file) == Costs()
    write_costs(merge([Costs({"b": 1.0, "c": 0.01}, {"f": 2.0}), Costs({"a": 3.0}, {"f": 1.0})]), file)
    assert read_costs(file) == Costs({"a": 3.0, "b": 1.0}, {"f": 2.0})
    assert file.read_text().index('"a"') < file.read_text().index('"b"')


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """Tests of a project of their own, which has our plugins."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makeconftest(_CONFTEST)
    pytester.makeini("[pytest]\nmarkers = needs\naddopts = -p no:cacheprovider")
    yield pytester


def test_processors_time_is_measured_of_tests_their_children_and_shared_fixtures(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_it="""
        import subprocess, sys
        from conftest import burn

        def test_itself(dear):
            burn(0.2)

        def test_child(dear):
            subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])

        def test_nothing(dear):
            pass
        """
    )
    assert inner.runpytest_subprocess("--record-costs", "costs.json").ret == 0
    found = json.loads((inner.path / "costs.json").read_text())
    assert found["fixtures"].keys() == {"::dear"} and found["fixtures"]["::dear"] >= 0.5
    assert found["tests"]["test_it.py::test_itself"] >= 0.15 and found["tests"]["test_it.py::test_child"] >= 0.4
    assert "test_it.py::test_nothing" not in found["tests"]


def test_a_need_that_is_not_met_is_a_skip_with_its_reason_and_a_failure_in_ci(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner.makepyfile("import pytest\n@pytest.mark.needs('no-such-program')\ndef test_it(): pass")
    monkeypatch.delenv("CI", raising=False)
    result = inner.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no-such-program is not installed*"])
    monkeypatch.setenv("CI", "true")
    inner.runpytest_subprocess().assert_outcomes(errors=1)


def test_a_program_that_is_there_is_no_reason_against_a_test() -> None:
    assert reason_against("sh") == ""


@pytest.mark.needs("guests")
def test_guests_need_root_as_well(request: pytest.FixtureRequest) -> None:
    assert needs_of(request.node) == {"guests", "root"}


@pytest.mark.parametrize("own", [None, 7])
def test_a_larger_budget_means_more_examples_whatever_a_test_says(own: int | None) -> None:
    drawn: list[int] = []

    @given(st.integers())
    def fuzzed(number: int) -> None:
        drawn.append(number)

    test = settings(max_examples=own)(fuzzed) if own else fuzzed
    enlarge(test, 3)
    test()
    assert len(drawn) == 3 * (own or settings().max_examples)


@given(st.none())
def test_that_makes_up_its_input_is_of_make_fuzz(request: pytest.FixtureRequest, _: None) -> None:
    assert is_fuzz(request.node)
