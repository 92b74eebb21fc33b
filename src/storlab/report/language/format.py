"""Numbers for people: base units in, text out. The only place where Storlab rounds.

A number is rounded to what its interval supports: the place of the half-width's first digit, or its second where
the first is 1 or 2 (the Particle Data Group's rule, Review of Particle Physics, section 5.3, simplified).
Without an interval it gets three significant digits, and never loses digits before the point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from storlab.base.amounts import plural as plural
from storlab.report.language.phrases import endless

MINUS = "−"
UNKNOWN = "n/a"


@dataclass(frozen=True)
class Scale:
    """A display unit: how many base units one of it is, and its sign. ``joined``: it follows without a space."""

    factor: float
    symbol: str
    joined: bool = False

    def attach(self, number: str) -> str:
        """``number`` with this unit: "24.7 MiB/s", "85/s", "13.4k IOPS"."""
        if not self.symbol:
            return number
        return f"{number}{self.symbol}" if self.joined else f"{number} {self.symbol}"


def _prefixed(symbols: Sequence[str], step: float, suffix: str, first: float = 1.0) -> tuple[Scale, ...]:
    names = (symbol + suffix for symbol in symbols)
    return tuple(Scale(first * step**power, name, name.startswith("/")) for power, name in enumerate(names))


def _counted(suffix: str, symbols: Sequence[str] = ("", "k", "M", "G")) -> tuple[Scale, ...]:
    scales = _prefixed(symbols, 1000, suffix)
    return tuple(Scale(each.factor, each.symbol.strip(), bool(each.symbol[:1].strip())) for each in scales)


_SCALES: dict[str, tuple[Scale, ...]] = {
    "B/s": _prefixed(("", "Ki", "Mi", "Gi", "Ti"), 1024, "B/s"),
    "B": _prefixed(("", "Ki", "Mi", "Gi", "Ti", "Pi"), 1024, "B"),
    "1/s": _counted("/s"),
    "IOPS": _counted(" IOPS"),
    "s": _prefixed(("n", "µ", "m", ""), 1000, "s", first=1e-9),
    "1": _counted(""),
    # Variances: a prefix is squared with its unit.
    "B²/s²": _prefixed(("", "Ki", "Mi", "Gi"), 1024**2, "B²/s²"),
    "IOPS²": tuple(Scale(scale**2, f"({sign}IOPS)²") for scale, sign in ((1, ""), (1e3, "k"), (1e6, "M"))),
    "1/s²": _prefixed(("", "k²", "M²", "G²"), 1000**2, "/s²"),
}
_TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_DIGITS, _MOST = 15, 1e18  # what a float holds; 300 zeros would say no more
# As fio prints: "4891 KiB/s", and MiB/s only from ten of them on.
_SMALLEST: dict[str, float] = {"B/s": 10.0}


def unit_of(metric: str, unit: str) -> str:
    """The unit by which people know a metric: IOPS rather than 1/s."""
    return "IOPS" if unit == "1/s" and metric.rpartition(".")[2] == "iops" else unit


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def scale(value: float, unit: str) -> Scale:
    """The display unit in which ``value`` (in base ``unit``) is best read."""
    scales = _SCALES.get(unit)
    if scales is None:
        return Scale(1.0, unit)
    if not math.isfinite(value) or value == 0:
        return next(s for s in scales if s.factor == 1.0)
    size = max(abs(value), abs(_significant(value, 3)))  # 999.9 µs reads "1.00 ms", not "1000 µs"
    least = _SMALLEST.get(unit, 1.0)
    # The tolerance is for 1e-9 × 1000³, which falls short of 1 by a rounding error.
    fitting = [s for s in scales if size >= s.factor * least * (1 - 1e-12)]
    return fitting[-1] if fitting else scales[0]


def common_scale(values: Iterable[float], unit: str) -> Scale | None:
    """One display unit for a whole column; ``None`` where the values lie too far apart for one."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    if not sizes:
        return scale(0.0, unit)
    shared = scale(max(sizes), unit)
    return shared if min(sizes) / shared.factor >= 0.1 else None


def decimals(value: float, half_width: float | None = None) -> int:
    """Digits after the point; negative where even tens or hundreds aren't supported."""
    if not math.isfinite(value):
        return 0
    own = _place(value)
    if half_width is None or not math.isfinite(half_width) or half_width <= 0:
        return max(0, 2 - own)
    place = _place(half_width)
    if _significant(half_width, 2) / 10.0**place < 3:
        place -= 1
    # Two digits at least, or the number says nothing; six at most, whatever the interval claims.
    return min(max(-place, 1 - own), 5 - own)


def _place(value: float) -> int:
    """The power of ten of the first digit, after rounding to three digits; 0 for 0 and what is not finite."""
    return int(f"{value:.2e}".partition("e")[2]) if math.isfinite(value) else 0


def number(value: float, digits: int = 0) -> str:
    """``value`` with ``digits`` after the point (or rounded to tens, where negative) and a true minus sign."""
    if not math.isfinite(value):
        return UNKNOWN if math.isnan(value) else ("∞" if value > 0 else f"{MINUS}∞")
    if abs(value) >= _MOST or digits > _DIGITS:
        return f"{value:.2e}".replace("-", MINUS)
    text = f"{round(value, digits):.{max(digits, 0)}f}"
    if text.startswith("-"):
        text = MINUS + text[1:] if text.strip("-0.") else text[1:]
    return text


def _half_width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else abs(high - low) / 2


def quantity(
    value: float | None, unit: str, low: float | None = None, high: float | None = None, *, within: Scale | None = None
) -> str:
    """``value`` with its unit, rounded to what the interval ``low`` … ``high`` supports: "24.7 MiB/s"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    chosen = within or scale(value, unit)
    half = _half_width(low, high)
    digits = decimals(value / chosen.factor, None if half is None else half / chosen.factor)
    return chosen.attach(number(value / chosen.factor, digits))


def interval(
    low: float | None, high: float | None, unit: str, value: float | None = None, *, within: Scale | None = None
) -> str:
    """ "23.9 to 25.4 MiB/s", in the display unit and to the digits of ``value``; empty where there is none."""
    if low is None or high is None:
        return ""
    centre = (low + high) / 2 if value is None else value
    chosen = within or scale(centre, unit)
    half = abs(high - low) / 2 / chosen.factor
    digits = decimals(centre / chosen.factor, half)
    ends = (number(end / chosen.factor, digits) for end in (low, high))
    return chosen.attach(" to ".join(ends))


def plus_minus(value: float, unit: str, low: float | None, high: float | None, *, within: Scale | None = None) -> str:
    """ "4.78 ±0.04 MiB/s", for tables with many columns; without an interval the number alone.

    The half-width is that of the upper side: an interval of what can't be negative may be cut off at 0.
    """
    chosen = within or scale(value, unit)
    if high is None or low is None or not math.isfinite(high - value):
        return quantity(value, unit, within=chosen)
    half = (high - value) / chosen.factor
    digits = decimals(value / chosen.factor, half)
    shown = max(half, 10.0**-digits) if half > 0 else 0.0  # never ±0 of what is not certain
    return chosen.attach(f"{number(value / chosen.factor, digits)} ±{number(shown, digits)}")


def ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """ "1.42×"; never "1.00×" where its interval does not hold 1."""
    if value is None:
        return UNKNOWN
    digits = _ratio_digits(value, low, high)
    apart = low is not None and high is not None and not low <= 1 <= high
    return endless(value) or f"{number(value, _beside_one(value, digits) if apart else digits)}×"


def ratio_interval(low: float | None, high: float | None, value: float | None = None) -> str:
    """Both ends, as "1.31× to 1.54×" or "0.22× to 14.1×"; empty where there is none.

    An end reads as 1 only where it is nothing else in six decimals: verdicts tell intervals by whether they hold 1.
    """
    if low is None or high is None:
        return ""
    centre = (low + high) / 2 if value is None else value
    digits = _ratio_digits(centre, low, high)
    # Hundredths that only a small ratio needs are too many for an end that is far larger.
    spare = digits > max(0, decimals(centre, _half_width(low, high)))
    own = {end: min(digits, max(0, 2 - _place(end))) if spare else digits for end in (low, high)}
    return " to ".join(endless(end) or f"{number(end, _beside_one(end, own[end]))}×" for end in (low, high))


def _beside_one(end: float, digits: int) -> int:
    """``digits``, or more where ``end`` is not 1 and would read as 1."""
    while digits < 6 and abs(end - 1) > 1e-8 and round(end, digits) == 1:
        digits += 1
    return digits


def _ratio_digits(value: float, low: float | None, high: float | None) -> int:
    # A ratio's neutral value is 1, so hundredths are the least that tells 0.97 from 1.03.
    digits = decimals(value, _half_width(low, high))
    return max(digits, 2 if abs(value) < 10 else 0) if digits >= 0 else 0


def percent(change: float, low: float | None = None, high: float | None = None) -> str:
    """A relative change, 0.42 → "+42 %"."""
    half = _half_width(low, high)
    digits = max(0, decimals(change * 100, None if half is None else half * 100)) if half else 0
    if half is None and 0 < abs(change) < 0.1:
        digits = 1
    text = number(change * 100, digits)
    signed = text if text.startswith(MINUS) or not text.strip("0.") or not math.isfinite(change) else f"+{text}"
    return f"{signed} %"


def share(part: float | None) -> str:
    """A part of a whole, or a coefficient of variation: 0.031 → "3.1 %"."""
    if part is None:
        return ""
    size = abs(part)
    digits = 0 if size >= 0.0995 else 1 if size >= 0.0005 or size == 0 else max(2, -_floor_log10(size * 100))
    return f"{number(part * 100, digits)} %"


def part(value: float, half: float = 0.0) -> str:
    """A part of a whole that never reads as all or as nothing unless it is: 0.99983 → "99.98 %", 0.00012 → "0.012 %".

    ``half`` is how far it varies, shown where that changes a digit: "48 ±2 %".
    """
    if not 0 < value < 1 and not half:
        return f"{number(value * 100)} %"
    rest = min(value, 1 - value) * 100 or half * 100
    if rest < 1e-4 and not half:
        return "<0.0001 %" if value < 0.5 else ">99.9999 %"
    digits = min(4, max(0, (1 if value < 0.5 or 1 <= rest < 10 else 0) - _floor_log10(rest)))
    spread = number(half * 100, digits)
    return f"{number(value * 100, digits)}{f' ±{spread}' if spread.strip('0.') else ''} %"


def _floor_log10(value: float) -> int:
    return math.floor(math.log10(value) + 1e-12)


def margin(value: float) -> str:
    """A margin of equivalence: 0.05 → "±5 %"."""
    text = number(value * 100, 2)
    return f"±{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def confidence(value: float) -> str:
    """0.95 → "95 %", 0.99167 → "99.17 %"; never 100 %."""
    text = f"{min(round(value * 100, 2), 99.99):.2f}"
    return f"{text.rstrip('0').rstrip('.')} %"


def duration(seconds: float | None) -> str:
    """ "2 min 14 s", "1 h 3 min", "0.4 s": the two largest units that are not 0."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return MINUS + duration(-seconds)
    if seconds < 9.95:
        return quantity(seconds, "s") if seconds < 0.1 else f"{number(seconds, 1)} s"
    whole = round(seconds)
    largest = next((i for i, (size, _) in enumerate(_TIMES) if whole >= size), len(_TIMES) - 1)
    finest = _TIMES[min(largest + 1, len(_TIMES) - 1)][0]
    left, parts = round(seconds / finest) * finest, []
    for size, name in _TIMES:
        count, left = divmod(left, size)
        parts.append((count, name))
    first = next((i for i, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {name}" for count, name in parts[first : first + 2] if count)


def instant(moment: datetime) -> str:
    """As people read it, in its own zone: "2026-03-14 09:26:53 UTC"."""
    zone = moment.utcoffset()
    name = "" if zone is None else " UTC" if not zone else moment.strftime(" %z")
    return f"{moment:%Y-%m-%d %H:%M:%S}{name}"


def about(count: int) -> int:
    """A forecast to two significant digits: 5422 → 5400."""
    return int(_significant(count, 2))
