"""The chapter "why": what differs underneath the levels that were compared, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storlab.analysis.summary import Comparison, Difference, Summary, Underneath
from storlab.metrics import END, PROBE
from storlab.report.document import Block, Group, Line, Sentences, said
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.say import say
from storlab.report.model.tables import heading

_FIRST = 3  # lines that follow a verdict
_SUREST = 4  # comparisons whose surest difference is shown where little is
_MOST = 12  # lines in the chapter; JSON has all
_OPEN = 2  # questions whose reasons are seen at once; more are folded
_NAMED = 6  # comparisons in one sentence

LEAD = (
    "What was watched underneath and differs between two levels, first waiting that accounts for it, then what is "
    "surest and largest. This is evidence, not a cause: it shows what went along with the difference, not what caused "
    "it, and no verdict rests on it."
)
_OF = {
    "with": "it rises and falls with {metric} from round to round",
    "against": "from round to round, the more of it, the less {metric}",
    "unclear": "",
}
_TAKES = {"operation": "an operation", "trial": "a trial"}
_MIB = 1 << 20
_POINT = 1e-9  # of a ratio: an interval that is narrower is none


def best_lines(comparison: Comparison) -> tuple[str, ...]:
    """What follows a verdict of better or worse at once; empty for others, and where nothing was watched."""
    why = comparison.why
    if why is None or comparison.verdict not in ("better", "worse"):
        return ()
    if not differs(comparison):
        return (nothing_differs(why),)
    lines = [words.stop(sentence(comparison, d)) for d in why.differences[:_FIRST]]
    return (*lines, *_facts(comparison, why))


def differs(comparison: Comparison) -> bool:
    """Whether anything is named underneath it, a metric or a setting."""
    return comparison.why is not None and bool(comparison.why.differences or comparison.why.facts)


def nothing_differs(why: Underneath) -> str:
    """That nothing does; or that so few rounds can't tell."""
    watched = fmt.plural(why.watched, "metric")
    if why.rounds < why.needed and why.watched:
        return (
            f"Too few rounds to say why: none of the {watched} from underneath can be named before round {why.needed}."
        )
    return f"Nothing that was watched differs ({watched} from underneath)."


def sentence(comparison: Comparison, d: Difference) -> str:
    """ "iSCSI: 46 ACKs per operation, NVMe/TCP: 3.9"; and, of waiting that accounts for it, what it accounts for."""
    a, b = (words.named(comparison.factor, level) for level in (comparison.a, comparison.b))
    one, other = _values(d)
    place = _place(d.source)
    longer = _longer(d, a if d.a > d.b else b)
    if not d.noun:
        return f"{d.metric}{_per(d)}{place}: {one} with {a}, {other} with {b}{longer}"
    if d.a == 0:  # the words stand with the number
        a, one, b, other = b, other, a, one
    return f"{a}: {one} {d.noun}{_per(d)}{place}, {b}: {other}{longer}"


def details(comparison: Comparison, d: Difference) -> str:
    """How sure and how large it is, and how it goes along with what was judged, in parentheses."""
    rounds = fmt.plural(comparison.why.rounds if comparison.why else 0, "round")
    parts = [
        _ratio(d),
        f"in {d.agreeing} of {rounds}",
        _OF[d.moves].format(metric=comparison.metric),
        "the same rate per second on both sides" if d.same_rate else "",
    ]
    return f"({'; '.join(part for part in parts if part)})"


def _ratio(d: Difference) -> str:
    """With its interval; a count that is the same in every round has none."""
    if d.ratio is None or d.low is None or d.high is None:
        return ""
    if d.high - d.low <= _POINT * d.ratio:
        return f"{fmt.ratio(d.ratio)} in every round"
    return f"{fmt.ratio(d.ratio, d.low, d.high)}, {fmt.ratio_interval(d.low, d.high, d.ratio)}"


def why_blocks(summary: Summary) -> tuple[Block, ...]:
    """The whole chapter; nothing if nothing was looked at."""
    looked = [c for c in summary.comparisons if c.why is not None]
    if not looked:
        return ()
    groups: dict[str, list[Block]] = {}
    for c in looked:
        if differs(c):
            where = heading(c.metric, c.source, c.within) + (f", {words.POOLED}" if c.pooled else "")
            groups.setdefault(where, []).append(_part(c))
    left = sum(c.why is None and c.verdict in ("better", "worse") for c in summary.comparisons)
    beyond = [f"Not examined underneath: {fmt.plural(left, 'further comparison')} better or worse."] if left else []
    nothing = (*_nothing(c for c in looked if not differs(c)), *beyond)
    return (
        *said(LEAD, tone="soft"),
        *(Group(name, tuple(parts), folded=len(groups) > _OPEN) for name, parts in groups.items()),
        *said(*nothing, mark="·"),
        *said(_method(looked), tone="soft"),
    )


def surest(comparisons: Iterable[Comparison]) -> tuple[Block, ...]:
    """The first difference underneath each of the first comparisons, each said once."""
    lines = dict.fromkeys(best_lines(c)[0] for c in comparisons if best_lines(c) and differs(c))
    lead = said("What differs first underneath each comparison: evidence, not a cause.", tone="soft") if lines else ()
    return (*lead, *said(*list(lines)[:_SUREST], mark="·"))


def _part(c: Comparison) -> Sentences:
    """One comparison: its claim, what differs underneath, and what else is to be said."""
    assert c.why is not None
    why = c.why
    lines = [f"{sentence(c, d)} {details(c, d)}" for d in why.differences[:_MOST]]
    lines = [words.stop(_with_alike(text, d)) for text, d in zip(lines, why.differences, strict=False)]
    notes = [nothing_differs(why)] if not why.differences else []
    if len(why.differences) > _MOST:
        notes.append(f"{len(why.differences) - _MOST} more are in the JSON report.")
    notes += [say(why.left_out)] if why.left_out is not None else []
    under = (
        *(Line(text, "·") for text in (*lines, *_facts(c, why))),
        *(Line(n, "·", "soft") for n in notes),
    )
    return Sentences((Line(words.stop(words.claim(c)), words.mark(c), c.verdict, under),))


def _with_alike(text: str, d: Difference) -> str:
    names = [name.removeprefix(PROBE) for name in d.alike]
    return f"{text}; the same in other words: {words.listed(names)}" if names else text


def _facts(c: Comparison, why: Underneath) -> list[str]:
    """Settings that differ, in one sentence."""
    a, b = (words.named(c.factor, level) for level in (c.a, c.b))
    each = [f"{fact.name} is {fact.a} with {a} and {fact.b} with {b}" for fact in why.facts]
    return [words.stop(f"Settings differ: {'; '.join(each)}")] if each else []


def _nothing(comparisons: Iterable[Comparison]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for c in comparisons:
        assert c.why is not None
        where = f" ({place})" if (place := words.place(c)) else ""
        pair = f"{words.named(c.factor, c.a)} against {words.named(c.factor, c.b)}{where}, {c.metric}"
        groups.setdefault(nothing_differs(c.why), []).append(pair)
    return [f"{_some(pairs)}: {said}" for said, pairs in groups.items()]


def _some(pairs: Sequence[str]) -> str:
    more = len(pairs) - _NAMED
    return "; ".join(pairs[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _method(looked: Sequence[Comparison]) -> str:
    """How sure the lines are, for who reads the chapter alone."""
    of = [c.why for c in looked if c.why is not None]
    confidence = fmt.confidence(min(why.confidence for why in of))
    least, most = min(why.watched for why in of), max(why.watched for why in of)
    watched = fmt.plural(most, "metric") if least == most else f"{least} to {most} metrics"
    return (
        f"Amounts are for each operation of the load. Of {watched} that vary between the two sides of a comparison, "
        f"those named all differ, with a confidence of {confidence} for each comparison on its own: closed "
        "testing of t martingales over rounds, which assumes roughly normal noise; for each line alone, signs and "
        "ranks confirm it whatever the noise."
    )


def _per(d: Difference) -> str:
    match d.per:
        case "operation":
            return " per operation"
        case "byte":
            return " per byte" if d.unit == "B" else " per MiB"
        case "trial":
            return " in all"
        case _:
            return ""


def _longer(d: Difference, slower: str) -> str:
    """How much longer what was waited for takes there."""
    if d.longer is None:
        return ""
    what, seconds = ("a MiB", d.longer * _MIB) if d.per == "byte" else (_TAKES.get(d.per, ""), d.longer)
    return f"; {what} takes {fmt.quantity(seconds, 's')} longer with {slower}"


def _values(d: Difference) -> tuple[str, str]:
    """Both values, in one unit where that can be read; shares in per cent."""
    a, b = d.a, d.b
    if d.per == "byte" and d.unit != "B":
        a, b = a * _MIB, b * _MIB
    if not d.per and d.unit == "1" and d.noun.startswith("of "):
        return fmt.part(min(a, 1.0)), fmt.part(min(b, 1.0))
    unit = fmt.common_scale([a, b], d.unit)
    one, other = (fmt.quantity(value, d.unit, within=unit) if value else "none" for value in (a, b))
    return one, other


def _place(source: str) -> str:
    """Where it was watched, unless that is where the load ran."""
    _, at, group = source.partition(END)
    return f" on {group}" if at else ""
