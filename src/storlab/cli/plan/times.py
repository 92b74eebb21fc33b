"""What a plan says of its time: how long, and where that figure comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storlab.report.language.format import duration, quantity
from storlab.report.language.words import listed
from storlab.run.planning.estimates import RoundTime, Speed, round_time

if TYPE_CHECKING:
    from storlab.run.planning.plan import Plan


def time_text(made: Plan) -> str:
    """``about 2 min to 5 min``, with what it rests on where loads don't say it themselves."""
    expected = round_time(made)
    if expected.unknown and not expected.by_work and all(_unknown_alone(made, expected)):
        return f"unknown before the first round: {_unknown(expected)}"
    least, most = (duration(round(expected.seconds * rounds)) for rounds in made.rounds)
    about = f"about {least}" if least == most else f"about {least} to {most}"
    if expected.last_run is not None:
        return f"{about}, if trials take as long as in its last run, {expected.last_run}"
    parts = []
    if expected.by_work and expected.speed is not None:
        parts.append(f"{listed(expected.by_work)} by the amount of work at {_speed(expected.speed)}")
    if expected.unknown:
        parts.append(_unknown(expected))
    if made.emulated:
        parts.append("virtual machines are emulated, and may take several times as long")
    if expected.unknown or made.emulated:
        about = about.replace("about", "at least", 1)
    return f"{about}: {'; '.join(parts)}" if parts else about


def _unknown_alone(made: Plan, expected: RoundTime) -> list[bool]:
    return [load.name in expected.unknown for cell in made.supported for load in cell.loads]


def _unknown(expected: RoundTime) -> str:
    return f"it is not known how long {listed(expected.unknown)} will run"


def _speed(speed: Speed) -> str:
    rate, bandwidth = f"{speed.rate:,.0f} operations/s that wait for storage", quantity(speed.bandwidth, "B/s")
    if speed.measured:
        return f"{rate}, as `storlab noise` measured on {speed.measured}, and {bandwidth}, which is assumed"
    return f"{rate} and {bandwidth}, which is assumed (`storlab noise` measures this machine)"


def time_as_data(made: Plan) -> dict[str, object]:
    """For programs; ``from``: the last run, the loads' own words, or their amount of work."""
    expected = round_time(made)
    source = "last run" if expected.last_run else "amount of work" if expected.by_work else "loads"
    return {
        "from": source,
        "run": str(expected.last_run) if expected.last_run else None,
        "by_work": list(expected.by_work),
        "unknown": list(expected.unknown),
        "seconds_per_round": None if expected.unknown else expected.seconds,
    }
