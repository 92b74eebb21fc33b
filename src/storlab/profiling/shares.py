"""Shares of CPU by function and by group of functions, and stacks in the folded form that flame graphs are made of.

Groups are shares of all CPU time: in the kernel, in programs, idle. Functions are shares of the time in which CPUs were
busy, as with ``perf report``, whose hardware clock stands still while a CPU is idle.

B. Gregg, "The Flame Graph", ACM Queue 14 (2016), for the folded form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from storlab.metrics import MetricSpec, Value
from storlab.profiling.agent_output import UNKNOWN, Frame, Group, Output
from storlab.text import one_line

_KERNEL = "kernel"
_MARK = "_[k]"
"""What flame graphs colour as functions of the kernel: ``stackcollapse-perf.pl --kernel``."""
LEAST = 0.005
"""The share of busy time from which on, in any trial, a function is looked at."""
FOREMOST = 100
"""Functions of a trial that are looked at, those with the largest shares."""
MOST = 500
"""Functions of a trial that have metrics. One beyond them has at most a five-hundredth."""

_NOUNS = {"kernel": "of CPU in the kernel", "user": "of CPU in programs", "idle": "of CPU idle"}
GROUPS = {
    group: MetricSpec(f"share.{group}", "1", across="mean", noun=_NOUNS[group], domain="share")
    for group in get_args(Group)
}
SELF = MetricSpec(
    "self.{function}", "1", across="mean", noun="of busy CPU in {function}", domain="share", zero_if_absent=True,
    foremost=FOREMOST, least=LEAST,
)  # fmt: skip
TOTAL = MetricSpec(
    "total.{function}", "1", across="mean", noun="of busy CPU in {function} and what it calls", evidence="none",
    domain="share", zero_if_absent=True, foremost=FOREMOST, least=LEAST,
)  # fmt: skip
SAMPLES = MetricSpec("samples", "1", evidence="none")
METRICS = (*GROUPS.values(), SELF, TOTAL, SAMPLES)


@dataclass(frozen=True)
class Profile:
    """Command, group and frames → how often that was seen."""

    stacks: Mapping[tuple[str, Group, tuple[Frame, ...]], int]

    @property
    def samples(self) -> int:
        """All of them."""
        return sum(self.stacks.values())

    def groups(self) -> dict[Group, int]:
        """Samples in each."""
        found: dict[Group, int] = dict.fromkeys(get_args(Group), 0)
        for (_, group, _), count in self.stacks.items():
            found[group] += count
        return found

    def functions(self) -> tuple[Counter[str], Counter[str]]:
        """Busy samples by function: in it, and in it or in what it calls."""
        own, total = Counter[str](), Counter[str]()
        for (_, group, frames), count in self.stacks.items():
            if group != "idle" and frames:
                own[label(frames[-1])] += count
                # A program without frame pointers has places in its stacks that are none.
                for name in {label(frame) for frame in (*frames[-1:], *(f for f in frames if f[1] != UNKNOWN))}:
                    total[name] += count
        return own, total


def profile(output: Output, start: float = 0.0, end: float = float("inf")) -> Profile:
    """What was seen from ``start`` to ``end``, seconds on the monotonic clock, to within the agent's interval."""
    counts = Counter[tuple[str, Group, tuple[Frame, ...]]]()
    before = output.started.monotonic_ns
    for samples in output.samples:
        if samples.monotonic_ns / 1e9 > start and before / 1e9 < end:
            for number, count in samples.counts:
                stack = output.stacks[number]
                counts[stack.comm, stack.group, stack.frames] += count
        before = samples.monotonic_ns
    return Profile(counts)


def label(frame: Frame) -> str:
    """A function as metrics have it: ``vfs_write``, ``zio_execute`` of any module, ``libc.so.6/read`` of a program."""
    name, where = frame
    if where == UNKNOWN:
        return UNKNOWN
    return one_line(f"{where}/{name}" if is_user(frame) else name)


def is_user(frame: Frame) -> bool:
    """Whether it is a program's."""
    return frame[1] != _KERNEL and not frame[1].startswith("module:")


def values(found: Profile) -> Iterator[Value]:
    """All that follows from it."""
    total = found.samples
    if not total:
        return
    groups = found.groups()
    yield SAMPLES.value(total)
    yield from (spec.value(groups[group] / total) for group, spec in GROUPS.items())
    busy = total - groups["idle"]
    for spec, counts in zip((SELF, TOTAL), found.functions(), strict=True):
        for function, count in counts.most_common(MOST):
            if function != UNKNOWN:
                yield spec.value(count / busy, function=function)


def folded(found: Profile) -> Iterator[str]:
    """A line for each stack: command and functions, outermost first, with semicolons between, and how often."""
    sums = Counter[str]()
    for (comm, group, frames), count in found.stacks.items():
        words = [_plain(comm), *(_word(frame) for frame in frames if frame[1] != UNKNOWN)]
        sums[";".join(words if group != "idle" else [words[0], "[idle]"])] += count
    return (f"{line} {count}" for line, count in sorted(sums.items()))


def _word(frame: Frame) -> str:
    name = _plain(frame[0])
    return name if is_user(frame) else f"{name}{_MARK}"


def _plain(name: str) -> str:
    """Programs choose their own names and those of their functions: without what the folded form means something by."""
    return one_line(name).replace(";", ":")
