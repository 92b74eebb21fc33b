"""What ``storlab trace --tcp`` shows: all connections together, then each, as many as the terminal has room for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from storlab.probes.tcp.totals import Followed, Follower, Totals
from storlab.report.language.format import quantity
from storlab.text import printable

_ABOVE = 7  # lines that are not of single connections
_LEAST, _MOST = 3, 40  # connections
_COLUMNS = (
    ("sent", "received", "segments", "ACKs sent", "MSS/ACK", "ACKs got", "MSS/ACK", "again", "RTT", "cwnd"),
    ("sent", "received", "ACKs sent", "MSS/ACK", "again", "RTT"),
    ("sent", "received", "RTT"),
)
_WIDTHS = (120, 88, 0)  # columns of the terminal from which on each of these is shown


class TcpView:
    """Draws it as wide as the terminal is; ``ended``: nothing more comes."""

    def __init__(self, seen: Follower, ended: bool = False) -> None:
        self._seen, self._ended = seen, ended

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        seen, totals = self._seen, self._seen.totals()
        yield self._heading()
        yield from _sums(totals)
        every = seen.connections()
        if not every and not seen.ended:
            yield Text("No connection yet." if not self._ended else "No connection was seen.", style="dim")
            return
        room = _MOST if self._ended else min(max(console.height - _ABOVE, _LEAST), _MOST)
        yield Text()
        if every:
            yield _table(every[:room], options.max_width)
        left = len(every) - room
        if left > 0:
            yield Text(f"… and {left} more", style="dim")
        if seen.ended:
            yield Text(f"{seen.ended} closed", style="dim")

    def _heading(self) -> Text:
        seen = self._seen
        endpoints = ", ".join(map(printable, seen.started.endpoints)) if seen.started is not None else ""
        text = Text(f"TCP connections{f' of {endpoints}' if endpoints else ''}", style="bold", no_wrap=True)
        text.overflow = "ellipsis"
        return text.append(f"   {seen.elapsed:.0f} s{'' if self._ended else '; Ctrl-C ends it'}", style="not bold dim")


def _sums(did: Totals) -> Iterator[Text]:
    parts = [
        f"sent {quantity(float(did.bytes_sent), 'B')} in {did.segments_sent:,} segments and {did.acks_sent:,} ACKs",
        f"received {quantity(float(did.bytes_received), 'B')} and {did.acks_received:,} ACKs",
        f"{did.retransmits:,} retransmitted",
    ]
    yield Text("; ".join(parts))


def _table(every: list[Followed], width: int) -> Table:
    columns = next(names for names, least in zip(_COLUMNS, _WIDTHS, strict=True) if width >= least)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("this end", no_wrap=True, overflow="ellipsis")
    table.add_column("other end", no_wrap=True, overflow="ellipsis")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for each in every:
        one, cells = each.connection, _cells(each)
        chosen = list(cells) if len(columns) == len(cells) else [dict(_named(cells))[name] for name in columns]
        local, remote = (_end(one.local, one.local_port), _end(one.remote, one.remote_port))
        table.add_row(local, remote, *chosen)
    return table


def _named(cells: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Of two columns of one name, the first."""
    seen: set[str] = set()
    for name, cell in zip(_COLUMNS[0], cells, strict=True):
        if name not in seen:
            seen.add(name)
            yield name, cell


def _cells(each: Followed) -> tuple[str, ...]:
    did, now = each.totals, each.connection.numbers
    return (
        quantity(float(did.bytes_sent), "B"),
        quantity(float(did.bytes_received), "B"),
        f"{did.segments_sent:,}",
        f"{did.acks_sent:,}",
        _ratio(did.received_in_mss, did.acks_sent),
        f"{did.acks_received:,}",
        _ratio(did.sent_in_mss, did.acks_received),
        f"{did.retransmits:,}",
        quantity(now.rtt / 1e6, "s"),
        str(now.cwnd),
    )


def _ratio(above: float, below: int) -> str:
    return f"{above / below:.2f}" if below else ""


def _end(address: str, port: int) -> str:
    return f"[{printable(address)}]:{port}" if ":" in address else f"{printable(address)}:{port}"
