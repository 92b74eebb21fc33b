"""Numbers for people: what is printed is near what was measured, and never claims more than its interval."""

import math
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.report.language import format as fmt

MIB = 2.0**20
UNITS = ("B/s", "B", "1/s", "s", "1", "TPS")
sizes = st.floats(min_value=1e-9, max_value=1e15)
units = st.sampled_from(UNITS)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(24.7 * MIB, "B/s", "24.7 MiB/s"), (4891 * 1024, "B/s", "4891 KiB/s"), (655 * 1024, "B/s", "655 KiB/s"),
     (9.999 * MIB, "B/s", "10.0 MiB/s"), (13_400, "1/s", "13.4k/s"), (85.3, "1/s", "85.3/s"),
     (0.00124, "s", "1.24 ms"), (85e-6, "s", "85.0 µs"), (999.96e-6, "s", "1.00 ms"), (2**30, "B", "1.00 GiB"),
     (0.0, "s", "0.00 s"), (12.0, "TPS", "12.0 TPS"), (-3.5, "1", "−3.50"), (math.nan, "s", "n/a"),
     (math.inf, "B/s", "∞ B/s"), (None, "s", "n/a")],
)  # fmt: skip
def test_a_quantity_without_an_interval_has_three_digits(value: float | None, unit: str, text: str) -> None:
    assert fmt.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("low", "high", "value", "span"),
    [(240, 260, "250 MiB/s", "240 to 260 MiB/s"),
     (249.2, 250.8, "250.0 MiB/s", "249.2 to 250.8 MiB/s"),
     (200, 300, "250 MiB/s", "200 to 300 MiB/s"),
     (249.99, 250.01, "250.000 MiB/s", "249.990 to 250.010 MiB/s")],
)  # fmt: skip
def test_digits_follow_the_interval(low: float, high: float, value: str, span: str) -> None:
    assert fmt.quantity(250 * MIB, "B/s", low * MIB, high * MIB) == value
    assert fmt.interval(low * MIB, high * MIB, "B/s", 250 * MIB) == span


def _number(text: str) -> float:
    return float(text.split()[0].rstrip("×/skMG").replace(fmt.MINUS, "-"))


@given(sizes, units)
def test_what_is_printed_is_within_half_a_percent(value: float, unit: str) -> None:
    shown = _number(fmt.quantity(value, unit)) * fmt.scale(value, unit).factor
    # Below the smallest unit (a picosecond, a thousandth of a count) three digits are still given.
    assert shown == pytest.approx(value, rel=5.1e-3)


@given(sizes, units, st.floats(min_value=1e-6, max_value=0.9))
def test_rounding_is_small_beside_the_interval(value: float, unit: str, width: float) -> None:
    low, high = value * (1 - width), value * (1 + width)
    shown = _number(fmt.quantity(value, unit, low, high))
    error = abs(shown * fmt.scale(value, unit).factor - value)
    assert error <= max(0.51 * value * width, value * 1e-5) and error <= 0.051 * value
    ends = [_number(part) for part in fmt.interval(low, high, unit, value).split(" to ")]
    assert ends[0] <= shown <= ends[1]


@given(st.lists(sizes, min_size=1, max_size=5), units)
def test_a_column_with_one_unit_never_hides_a_value_behind_zeros(values: list[float], unit: str) -> None:
    shared = fmt.common_scale(values, unit)
    if shared is not None:
        assert all(value / shared.factor >= 0.1 for value in values)


@settings(max_examples=500)
@given(st.floats(min_value=1e-4, max_value=1e4), st.floats(min_value=1e-4, max_value=3))
def test_a_ratios_ends_are_printed_on_their_sides_of_it(value: float, width: float) -> None:
    low, high = value * math.exp(-width), value * math.exp(width)
    ends = [_number(part) for part in fmt.ratio_interval(low, high, value).split(" to ")]
    assert ends[0] <= _number(fmt.ratio(value, low, high)) <= ends[1]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [(1.42, None, None, "1.42×"), (1.0, 0.99, 1.01, "1.000×"), (1.4, 1.2, 1.7, "1.40×"),
     (0.0123, None, None, "0.0123×"), (152.2, 140.0, 165.0, "152×"), (1.003, 0.9, 1.1, "1.00×"),
     (1.001, 1.001, 1.001, "1.001×"), (None, None, None, "n/a")],
)  # fmt: skip
def test_ratios(value: float | None, low: float | None, high: float | None, text: str) -> None:
    assert fmt.ratio(value, low, high) == text


@pytest.mark.parametrize(
    ("change", "text"), [(0.42, "+42 %"), (-0.131, "−13 %"), (0.034, "+3.4 %"), (0.0, "0 %"), (-0.034, "−3.4 %")]
)
def test_percentages_always_have_a_sign(change: float, text: str) -> None:
    assert fmt.percent(change) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(134, "2 min 14 s"), (0.4, "0.4 s"), (59.7, "1 min"), (3780, "1 h 3 min"), (90061, "1 d 1 h"),
     (0.004, "4.00 ms"), (0, "0.00 s"), (-61, "−1 min 1 s"), (None, "n/a")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert fmt.duration(seconds) == text


def test_confidence_margins_moments_and_plurals() -> None:
    assert [fmt.confidence(c) for c in (0.95, 0.999999, 1 - 0.05 / 6)] == ["95 %", "99.99 %", "99.17 %"]
    assert fmt.margin(0.05) == "±5 %" and fmt.margin(0.025) == "±2.5 %"
    assert fmt.instant(datetime.fromisoformat("2026-03-14T09:26:53+00:00")) == "2026-03-14 09:26:53 UTC"
    assert fmt.instant(datetime.fromisoformat("2026-03-14T09:26:53+01:00")) == "2026-03-14 09:26:53 +0100"
    assert fmt.plural(1, "round") == "1 round" and fmt.plural(0, "round") == "0 rounds"
    assert fmt.ratio_interval(0.22, 14.11, 1.76) == "0.22× to 14.1×"
    assert fmt.ratio_interval(0.22, math.inf, 1.76) == "0.22× to ∞×"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [(1.12, 1.0008, 1.26, "1.001× to 1.26×"), (1.12, 1.00008, 1.26, "1.0001× to 1.26×"),
     (0.88, 0.79, 0.9961, "0.79× to 0.996×"), (12.0, 1.04, 140.0, "1.04× to 140×"),
     (1.12, 1.0, 1.26, "1.00× to 1.26×"), (1.12, 1 + 1e-9, 1.26, "1.00× to 1.26×"),
     (1.12, 1 + 4e-7, 1.26, "1.000000× to 1.26×")],
)  # fmt: skip
def test_an_end_reads_as_1_only_where_it_is(value: float, low: float, high: float, text: str) -> None:
    assert fmt.ratio_interval(low, high, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e300, "1.00e+300 s"), (1.797e308, "1.80e+308 s"), (-1e300, f"{fmt.MINUS}1.00e+300 s"),
     (1e-300, f"1.00e{fmt.MINUS}291 ns"), (1e14, "1" + "0" * 14 + " s")],
)  # fmt: skip
def test_a_number_is_not_padded_with_more_zeros_than_a_float_has_digits(value: float, text: str) -> None:
    assert fmt.quantity(value, "s") == text
