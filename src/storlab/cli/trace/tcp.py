"""``storlab trace --tcp``: TCP connections of this machine, live, as a table at the end, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import orjson
from rich.console import RenderableType
from rich.text import Text

from storlab.base.text import printable
from storlab.cli.trace.screen import Options, Screen, plain_table, rows_for
from storlab.probes.tcp.metrics import values
from storlab.probes.tcp.output import LINES, Line, Started
from storlab.probes.tcp.totals import Followed, Follower
from storlab.report.language.format import quantity

_ABOVE = 7  # lines that are not of single connections


class Connections(Screen[Line]):
    """All connections together, then each."""

    first: ClassVar = Started

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.seen = Follower()

    def decode(self, chunk: bytes, source: str) -> list[Line]:
        return LINES.decode_all(chunk, source)

    def add(self, line: Any) -> bool:
        self.seen.add(line)
        return self.seen.last is not None and not self.complete

    @property
    def complete(self) -> bool:
        return self.seen.last is not None and self.seen.last.final

    def doing(self) -> str:
        started = self.seen.started
        return "watching TCP connections" + (
            f" of {', '.join(started.endpoints)}" if started and started.endpoints else ""
        )

    def notes(self) -> Iterable[str]:
        if self.seen.started is not None and not self.seen.started.events:
            reason = self.seen.started.reason or "no reason given"
            yield f"of connections that close, what came after the last look at them is missing: {reason}"

    def warnings(self) -> Iterable[str]:
        if not self.complete:
            yield "the agent's program did not end cleanly: what came after its last count is missing"

    def document(self) -> str:
        """Metrics, named as those of the probe ``tcp``, and each connection."""
        seen, totals = self.seen, self.seen.totals()
        totals.connections = len(seen.connections()) + seen.ended
        totals.opened, totals.closed = seen.opened, seen.ended
        whole = {
            "elapsed": seen.elapsed,
            "metrics": {each.metric: each.value for each in values(totals)},
            "connections": [_entry(each) for each in seen.connections()],
        }
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()

    def parts(self, width: int, height: int, ended: bool) -> Iterator[RenderableType]:
        return connections(self.seen, width, height, ended)


def _entry(each: Followed) -> dict[str, object]:
    one, did = each.connection, each.totals
    did.connections = 1
    return {
        "local": f"{one.local}:{one.local_port}",
        "remote": f"{one.remote}:{one.remote_port}",
        "congestion_control": one.congestion,
        "rtt": one.numbers.rtt / 1e6,
        "cwnd": one.numbers.cwnd,
        **{value.metric: value.value for value in values(did) if not value.metric.startswith("connections")},
    }


_COLUMNS = {
    "sent": 0, "received": 0, "segments": 120, "ACKs sent": 88, "MSS/ACK": 88, "ACKs got": 120, "MSS/ACK got": 120,
    "again": 88, "RTT": 0, "cwnd": 120,
}  # fmt: skip
"""Each with the columns of a terminal from which on it is shown."""


def connections(seen: Follower, width: int, height: int, ended: bool = False) -> Iterator[RenderableType]:
    did = seen.totals()
    endpoints = ", ".join(map(printable, seen.started.endpoints)) if seen.started is not None else ""
    title = f"TCP connections{f' of {endpoints}' if endpoints else ''}"
    heading = Text(title, style="bold", no_wrap=True, overflow="ellipsis")
    yield heading.append(f"   {seen.elapsed:.0f} s{'' if ended else '; Ctrl-C ends it'}", style="not bold dim")
    yield Text(
        f"sent {quantity(float(did.bytes_sent), 'B')} in {did.segments_sent:,} segments and {did.acks_sent:,} ACKs; "
        f"received {quantity(float(did.bytes_received), 'B')} and {did.acks_received:,} ACKs; "
        f"{did.retransmits:,} retransmitted"
    )
    every = seen.connections()
    if not every and not seen.ended:
        yield Text("No connection was seen." if ended else "No connection yet.", style="dim")
        return
    yield Text()
    room = rows_for(height, _ABOVE, ended)
    if every:
        shown = [name for name, least in _COLUMNS.items() if width >= least]
        table = plain_table(
            ("this end", "other end"), [name.removesuffix(" got") if "MSS" in name else name for name in shown]
        )
        for each in every[:room]:
            one, cells = each.connection, _cells(each)
            ends = _end(one.local, one.local_port), _end(one.remote, one.remote_port)
            table.add_row(*ends, *(cells[name] for name in shown))
        yield table
    if len(every) > room:
        yield Text(f"… and {len(every) - room} more", style="dim")
    if seen.ended:
        yield Text(f"{seen.ended} closed", style="dim")


def _cells(each: Followed) -> dict[str, str]:
    did, now = each.totals, each.connection.numbers
    return {
        "sent": quantity(float(did.bytes_sent), "B"),
        "received": quantity(float(did.bytes_received), "B"),
        "segments": f"{did.segments_sent:,}",
        "ACKs sent": f"{did.acks_sent:,}",
        "MSS/ACK": f"{did.received_in_mss / did.acks_sent:.2f}" if did.acks_sent else "",
        "ACKs got": f"{did.acks_received:,}",
        "MSS/ACK got": f"{did.sent_in_mss / did.acks_received:.2f}" if did.acks_received else "",
        "again": f"{did.retransmits:,}",
        "RTT": quantity(now.rtt / 1e6, "s"),
        "cwnd": str(now.cwnd),
    }


def _end(address: str, port: int) -> str:
    return f"[{printable(address)}]:{port}" if ":" in address else f"{printable(address)}:{port}"
