"""Probe ``share-requests``: what a virtual machine's kernel asks of the servers of its shares, by kind of request.

Histogram triggers on the tracepoints of requests, in an instance of tracefs of its own: the kernel counts, and is asked
before the load and after it (Documentation/trace/histogram.rst in its sources). It is offered in virtual machines,
whose kernel is Storlab's alone: between loads it goes on counting there, because removing that takes an emulated guest
a tenth of a second, and letting it rest a fortieth. What requests ask for: include/uapi/linux/fuse.h and
include/net/9p/9p.h.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar

from storlab.base.errors import NodeError, ParseError
from storlab.base.text import grouped, is_whole, one_line
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, Seen, read_notes, write_notes
from storlab.probes.sampling import NAME, Snapshot, read_samples, samples_file, take_sample
from storlab.probes.subject import Kind, RequestProtocol, ShareMount

OTHER = "other"
ROOM = 256
"""Entries of a histogram: the kernel allocates them one by one, at each write to the trigger."""

INSTANCE = "/sys/kernel/tracing/instances/storlab-requests"
_END_TIMEOUT = 5.0  # s

_NOUNS = {
    "read": "read requests to the share",
    "write": "write requests to the share",
    "lookup": "lookups in the share",
    "getattr": "requests for attributes to the share",
    "open": "opens and closes in the share",
    "xattr": "requests for extended attributes to the share",
    "readdir": "requests for directories to the share",
    "sync": "syncs of the share",
    OTHER: "other requests to the share",
}
ALL = MetricSpec("requests", "1", noun="requests to the share")
PER_OPERATION = MetricSpec("requests.per-operation", "1", "lower", "none", evidence="none")
"""For each operation of the loads."""
_METADATA = MetricSpec("requests.metadata", "1", evidence="none")  # its parts say more
_OF_KIND = {
    kind: MetricSpec(f"requests.{kind}", "1", noun=noun, evidence="rare" if kind == "sync" else "")
    for kind, noun in _NOUNS.items()
}
_SENT = MetricSpec("requests.bytes", "B", noun="sent to the share's server")
_RECEIVED = MetricSpec("replies.bytes", "B", noun="received from the share's server")

# { connection:         35, opcode:         15 } hitcount:        101  len:       8080
_ENTRY = re.compile(r"\{ (?P<keys>[^{}]*) \} (?P<sums>hitcount:.*)")
_NUMBER = re.compile(r"\b(\w++): *+(\d+)\b")  # possessive: a name of 70 KB is looked at once
_DROPPED = re.compile(r" {4}Dropped: (\d+)")


@dataclass(frozen=True, eq=False)
class Counting:
    """How a kernel counts requests. ``request``: their tracepoint, ``operation`` its field that says which they are.

    ``mount``: its field with the number of the mount's device, where it has one; else all mounts are counted together.
    ``reply``: the tracepoint of replies, where it has their ``length``, as requests do then.
    """

    request: str
    operation: str
    kinds: Mapping[int, str]
    mount: str = ""
    reply: str = ""
    length: str = ""

    def triggers(self) -> dict[str, str]:
        keys = ",".join(filter(None, [self.mount, self.operation]))
        sums = f":vals={self.length}" if self.length else ""
        found = {self.request: f"hist:keys={keys}{sums}:size={ROOM}"}
        return {**found, self.reply: f"hist:keys={self.mount}{sums}:size={ROOM}"} if self.reply else found


def _by_number(kinds: Mapping[str, tuple[int, ...]]) -> dict[int, str]:
    return {number: kind for kind, numbers in kinds.items() for number in numbers}


# A close is FLUSH and RELEASE in FUSE, and in 9P the end (CLUNK) of what WALK and LOPEN began.
COUNTING: Mapping[RequestProtocol, Counting] = {
    "fuse": Counting(
        "fuse/fuse_request_send", "opcode",
        _by_number({
            "read": (15,), "write": (16,), "lookup": (1,), "getattr": (3, 52), "open": (14, 18, 25, 27, 29, 35, 51),
            "xattr": (21, 22, 23, 24), "readdir": (28, 44), "sync": (20, 30, 50),
        }),
        mount="connection", reply="fuse/fuse_request_end", length="len",
    ),
    "9p": Counting(
        "9p/9p_client_req", "type",
        _by_number({
            "read": (116,), "write": (118,), "lookup": (110,), "getattr": (24, 124), "open": (12, 14, 112, 114, 120),
            "xattr": (30, 32), "readdir": (40,), "sync": (50,),
        }),
    ),
}  # fmt: skip


class ShareRequestsProbe(Probe):
    """Counts requests to the servers of a virtual machine's virtiofs, 9p and sshfs mounts, by kind."""

    kind: ClassVar[str] = "share-requests"
    watches: ClassVar[frozenset[Kind]] = frozenset({"shares"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (ALL, PER_OPERATION, *_OF_KIND.values(), _METADATA, _SENT, _RECEIVED)

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        triggers: dict[str, str] = {}
        for counting in _by_protocol(context.subject.shares):
            triggers |= counting.triggers()
        paths = [_histogram(tracepoint) for tracepoint in triggers]
        refused = await _begin(context.node, triggers)
        write_notes(context.raw, refused)
        if refused:
            yield
            return
        with samples_file(context.raw, paths) as file:
            await take_sample(context.node, paths, file)
            yield
            with suppress(NodeError, TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT):
                    await take_sample(context.node, paths, file)

    def parse(self, record: ProbeRecord) -> Measurements:
        notes, shares = read_notes(record.raw), record.subject.shares
        if notes or not shares:
            return Measurements(warnings=notes)
        where, looks = str(record.raw / NAME), read_samples(record.raw)
        if len(looks) != 2:
            raise ParseError("requests were not counted both before the load and after it", where)
        try:
            before, after = (_counted(look, shares) for look in looks)
        except ValueError as error:
            raise ParseError(str(error), where) from None
        if any(after[each] < count for each, count in before.items()):
            raise ParseError("a count of requests ran backwards", where)
        # Of 9P no lengths are known, so a sum would be of some requests only.
        known = all(COUNTING[share.protocol].reply for share in shares)
        return Measurements(metric_frame(_values(after - before, lengths=known)))

    def derive(self, seen: Seen) -> Iterator[Value]:
        requests = [each.totals().get(ALL.name) for each in seen.nodes]
        counted = [each for each in requests if each is not None]
        if seen.at_load and counted and len(counted) == len(requests) and seen.operations is not None:
            yield PER_OPERATION.value(sum(counted) / seen.operations)


def _by_protocol(shares: Sequence[ShareMount]) -> dict[Counting, list[ShareMount]]:
    return {COUNTING[protocol]: list(each) for protocol, each in grouped((s.protocol, s) for s in shares).items()}


def _counted(look: Snapshot, shares: Sequence[ShareMount]) -> Counter[str]:
    """Requests by kind so far, and bytes. Raises ``ValueError`` where that can't be told."""
    found: Counter[str] = Counter()
    for counting, mounts in _by_protocol(shares).items():
        ours = {mount.number for mount in mounts}
        for entry in _entries(look, counting.request, counting, ours):
            found[counting.kinds.get(entry.keys.get(counting.operation, -1), OTHER)] += entry.hits
            found[_SENT.name] += entry.sums.get(counting.length, 0)
        for entry in _entries(look, counting.reply, counting, ours) if counting.reply else ():
            found[_RECEIVED.name] += entry.sums.get(counting.length, 0)
    return found


def _entries(look: Snapshot, tracepoint: str, counting: Counting, ours: Collection[int]) -> list[Entry]:
    histogram = parse_histogram(look.texts.get(_histogram(tracepoint), ""))
    if histogram is None:
        raise ValueError(f"there are no counts of {tracepoint}")
    if histogram.dropped:
        raise ValueError(f"the kernel had no room for all counts of {tracepoint}")
    return [each for each in histogram.entries if not counting.mount or each.keys.get(counting.mount) in ours]


def _values(counts: Mapping[str, int], *, lengths: bool) -> list[Value]:
    of_kind = {kind: counts.get(kind, 0) for kind in _OF_KIND}
    total = sum(of_kind.values())
    found = [ALL.value(total), *(_OF_KIND[kind].value(count) for kind, count in of_kind.items())]
    found.append(_METADATA.value(total - of_kind["read"] - of_kind["write"]))
    return [*found, *(spec.value(counts.get(spec.name, 0)) for spec in (_SENT, _RECEIVED) if lengths)]


async def _begin(node: Node, triggers: Mapping[str, str]) -> list[str]:
    done = await node.carry_out(*(steps.read(_histogram(name)) for name in triggers), go_on=True)
    found = [parse_histogram(each.text) if each.ok else None for each in done]
    if all(each is not None and not each.dropped and len(each.entries) < ROOM // 2 for each in found):
        return []  # it counts since an earlier load, and has room for more
    said = await _count(node, triggers)
    if said is None:
        return []
    await node.carry_out(steps.remove_directory(INSTANCE), go_on=True)
    return [f"share-requests: requests can't be counted on node {node.name}: {said}"]


async def _count(node: Node, triggers: Mapping[str, str]) -> str | None:
    look = steps.look(INSTANCE.rpartition("/")[0]), steps.look(INSTANCE), steps.read("/proc/sys/kernel/osrelease")
    tracefs, before, release = await node.carry_out(*look, go_on=True)
    if not tracefs.there:
        return "tracefs is not mounted"
    again = [steps.remove_directory(INSTANCE)] if before.there else []
    looks = [(steps.look(f"{INSTANCE}/events/{name}"), steps.look(_histogram(name))) for name in triggers]
    writes = [steps.write(f"{INSTANCE}/events/{name}/trigger", f"{words}\n") for name, words in triggers.items()]
    made = [*again, steps.make_directory(INSTANCE)]
    done = await node.carry_out(*made, *(each for pair in looks for each in pair), *writes, go_on=True)
    there = iter(done[len(made) :])
    for name, event, histogram in [(name, next(there), next(there)) for name in triggers]:
        if done[len(made) - 1].ok and not event.there:
            return f"Linux {release.text} has no tracepoint {name}; 6.12 has it"
        if event.there and not histogram.there:
            return f"Linux {release.text} was built without CONFIG_HIST_TRIGGERS"
    return next((one_line(each.result.message or "") for each in done if not each.ok), None)


def _histogram(tracepoint: str) -> str:
    return f"{INSTANCE}/events/{tracepoint}/hist"


@dataclass(frozen=True)
class Entry:
    """Events that have these values of the fields that are keys: how many, and sums of other fields."""

    keys: dict[str, int]
    hits: int
    sums: dict[str, int]


@dataclass(frozen=True)
class Histogram:
    """``dropped``: events for whose keys there was no room."""

    entries: tuple[Entry, ...]
    dropped: int


def parse_histogram(text: str) -> Histogram | None:
    """A trigger's histogram; ``None`` where this is none, or not all of one."""
    entries, dropped = list[Entry](), None
    for line in text.splitlines():
        if (found := _ENTRY.fullmatch(line)) is not None:
            keys, sums = _numbers(found["keys"]), _numbers(found["sums"])
            if keys is None or sums is None or "hitcount" not in sums:
                return None
            entries.append(Entry(keys, sums.pop("hitcount"), sums))
        elif (end := _DROPPED.fullmatch(line)) is not None and is_whole(end[1]):
            dropped = int(end[1])
    return None if dropped is None else Histogram(tuple(entries), dropped)


def _numbers(text: str) -> dict[str, int] | None:
    found = _NUMBER.findall(text)
    return {name: int(number) for name, number in found} if all(is_whole(number) for _, number in found) else None
