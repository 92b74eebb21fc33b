"""Probe ``card-traffic``: what goes through the cards of nodes in the run's network. See proc(5), ``/proc/net/dev``.

It watches each node that has such a card, at each end of a chain: numbers of the end that serves have its group's name
in their source (``probe:card-traffic@server``), and are never added to those of the end where the load runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from storlab.api import (
    Kind,
    Measurements,
    MetricSpec,
    ParseError,
    Probe,
    ProbeContext,
    ProbeRecord,
    around,
    metric_frame,
    read_samples,
    sampling,
)

_COUNTERS = "/proc/net/dev"  # of the namespace of whoever reads it: the node's agent
_BYTES_RECEIVED, _PACKETS_RECEIVED, _BYTES_SENT, _PACKETS_SENT = 0, 1, 8, 9  # columns

RECEIVED = MetricSpec("card.received.bytes", "B")
SENT = MetricSpec("card.sent.bytes", "B")
PACKETS_RECEIVED = MetricSpec("card.received.packets", "1")
PACKETS_SENT = MetricSpec("card.sent.packets", "1")


class CardTrafficProbe(Probe):
    """Counts bytes and packets on the cards of the nodes."""

    kind: ClassVar[str] = "card-traffic"
    watches: ClassVar[frozenset[Kind]] = frozenset({"interfaces"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (RECEIVED, PACKETS_RECEIVED, SENT, PACKETS_SENT)

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return sampling(context.node, [_COUNTERS], 1.0, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        snapshots = around(read_samples(record.raw), record.window)
        counted = [dict(parse_counters(snapshot.texts.get(_COUNTERS, ""))) for snapshot in snapshots]
        totals = [0.0] * 4
        for card in record.subject.interfaces:
            if not counted or card.name not in counted[0] or card.name not in counted[-1]:
                raise ParseError(f"no counters of {card.name}", str(record.raw))
            moved = (
                after - before for before, after in zip(counted[0][card.name], counted[-1][card.name], strict=True)
            )
            totals = [total + each for total, each in zip(totals, moved, strict=True)]
        values = [spec.value(total) for spec, total in zip(self.metrics, totals, strict=True)]
        return Measurements(metrics=metric_frame(values))


def parse_counters(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Card → bytes and packets received, bytes and packets sent, since the card is there."""
    for line in text.splitlines()[2:]:
        name, _, columns = line.partition(":")
        numbers = columns.split()
        if len(numbers) > _PACKETS_SENT and all(number.isdigit() for number in numbers):
            columns_wanted = (_BYTES_RECEIVED, _PACKETS_RECEIVED, _BYTES_SENT, _PACKETS_SENT)
            yield name.strip(), tuple(int(numbers[column]) for column in columns_wanted)
