"""Probe ``share-requests``: what a virtual machine's kernel asks of the servers of its shares, by kind of request.

Histogram triggers on the tracepoints of requests, in an instance of tracefs of its own: the kernel counts, and is asked
before the load and after it. It is offered in virtual machines, whose kernel is Storlab's alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import ClassVar

import orjson

from storlab.errors import NodeError, ParseError
from storlab.grouping import grouped
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.node import Node
from storlab.nodes.waiting import to_its_end
from storlab.probes.alignment.probe import NOTES, read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.requests.histogram import Entry, parse_histogram
from storlab.probes.requests.protocols import COUNTING, OTHER, Counting
from storlab.probes.sampling import NAME, Snapshot, read_samples, samples_file, take_sample
from storlab.probes.subject import Kind, ShareMount
from storlab.text import one_line

INSTANCE = "/sys/kernel/tracing/instances/storlab-requests"
_END_TIMEOUT = 5.0  # s

# With the names of tracepoints and what makes each count.
_BEGIN = f"""
if ! test -d {INSTANCE.rpartition("/")[0]}; then echo "tracefs is not mounted" >&2; exit 1; fi
if test -d {INSTANCE}; then rmdir {INSTANCE} || exit; fi
mkdir {INSTANCE} && cd {INSTANCE}/events || exit
while test $# -gt 0; do
    if ! test -d "$1"; then echo "Linux $(uname -r) has no tracepoint $1; 6.12 has it" >&2; exit 1; fi
    if ! test -e "$1/hist"; then echo "Linux $(uname -r) was built without CONFIG_HIST_TRIGGERS" >&2; exit 1; fi
    echo "$2" > "$1/trigger" || exit
    shift 2
done
"""

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
"""For each operation of the loads: ``storlab.records.share_requests``."""
_METADATA = MetricSpec("requests.metadata", "1", evidence="none")  # its parts say more
_OF_KIND = {
    kind: MetricSpec(f"requests.{kind}", "1", noun=noun, evidence="rare" if kind == "sync" else "")
    for kind, noun in _NOUNS.items()
}
_SENT = MetricSpec("requests.bytes", "B", noun="sent to the share's server")
_RECEIVED = MetricSpec("replies.bytes", "B", noun="received from the share's server")


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
        try:
            refused = await _begin(context.node, triggers)
            (context.raw / NOTES).write_bytes(orjson.dumps(refused))
            if refused:
                yield
                return
            with samples_file(context.raw, paths) as file:
                await take_sample(context.node, paths, file)
                yield
                with suppress(NodeError, TimeoutError):
                    async with asyncio.timeout(_END_TIMEOUT):
                        await take_sample(context.node, paths, file)
        finally:
            await to_its_end(_end(context.node))

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
    """Let the kernel count; sentences on why it can't."""
    words = [word for each in triggers.items() for word in each]
    ended = await node.run(["sh", "-c", _BEGIN, "sh", *words], check=False)
    if ended.ok:
        return []
    said = one_line(ended.stderr.decode(errors="replace")) or "tracefs gave no reason"
    return [f"share-requests: requests can't be counted on node {node.name}: {said}"]


async def _end(node: Node) -> None:
    with suppress(NodeError, TimeoutError):
        async with asyncio.timeout(_END_TIMEOUT):
            await node.run(["sh", "-c", f"if test -d {INSTANCE}; then rmdir {INSTANCE}; fi"], check=False)


def _histogram(tracepoint: str) -> str:
    return f"{INSTANCE}/events/{tracepoint}/hist"
