"""``storlab trace --tcp``: TCP connections of this machine, live, as a table at the end, or as JSON."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from storlab.agent_binary import agent_path
from storlab.cli.output import is_drawable, show_json, warn
from storlab.cli.status import OWN_FAULT
from storlab.cli.trace.run import Interruptible, TraceChild, signals, tracing
from storlab.probes.tcp.metrics import values
from storlab.probes.tcp.output import LINES, Line, Started
from storlab.probes.tcp.totals import Followed, Follower

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.live import Live

_INTERVAL = 1.0  # s
_ANY = "*"


@dataclass(frozen=True)
class TcpOptions:
    """Connections with one of the ports, and one of the addresses, at either end; ``interval``, ``period`` in s."""

    ports: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    json: bool = False
    interval: float | None = None
    period: float | None = None
    command: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Of the agent's program."""
        hosts = [f"[{host}]" if ":" in host else host for host in self.hosts] or [_ANY]
        ports = [str(port) for port in self.ports] or [_ANY]
        every = [f"{host}:{port}" for host in hosts for port in ports if (host, port) != (_ANY, _ANY)]
        words = [word for each in every for word in ("--endpoint", each)]
        words += ["--interval", f"{self.interval or _INTERVAL:.6f}"]
        return words + (["--for", f"{self.period:.6f}"] if self.period is not None else [])


def run(options: TcpOptions) -> int:
    """Watch until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    return asyncio.run(_watch(options))


async def _watch(options: TcpOptions) -> int:
    drawable = is_drawable(sys.stdout)
    work, seen = Interruptible(), Follower()
    with signals(work.signalled):
        words = [str(agent_path()), "tcp", *options.arguments()]
        async with tracing(words, LINES.decode_all) as tracer:
            work.tracer = tracer
            seen.add(started := await tracer.started(Started))
            _begin(options, started)
            shows = not options.command and not options.json
            with _live(seen) if shows and drawable else nullcontext(_ticking(options, seen)) as tick:
                following = asyncio.create_task(_follow(tracer, seen, tick))
                status = await work.command(options.command, aside=options.json) if options.command else 0
                if options.command or work.signal is not None:
                    tracer.end()
                await following
    _finish(options, seen)
    complete = seen.last is not None and seen.last.final
    return status if options.command or complete else OWN_FAULT


async def _follow(tracer: TraceChild[Line], seen: Follower, tick: Callable[[], None]) -> None:
    while lines := await tracer.lines():
        for line in lines:
            seen.add(line)
        if seen.last is not None and not seen.last.final:
            tick()


def _begin(options: TcpOptions, started: Started) -> None:
    if not options.command:
        warn(f"storlab: watching TCP connections{_of(started)}; Ctrl-C ends it")
    if not started.events:
        reason = started.reason or "no reason given"
        warn(f"storlab: of connections that close, what came after the last look at them is missing: {reason}")


def _of(started: Started) -> str:
    return f" of {', '.join(started.endpoints)}" if started.endpoints else ""


def _ticking(options: TcpOptions, seen: Follower) -> Callable[[], None]:
    """Without a terminal something is shown in between only where an interval was asked for."""
    if options.interval is None:
        return lambda: None
    return (lambda: show_json(document(seen))) if options.json else (lambda: _print(options, seen))


@contextmanager
def _live(seen: Follower) -> Iterator[Callable[[], None]]:
    from rich.live import Live

    from storlab.cli.console import Console
    from storlab.cli.trace.tcp_view import TcpView

    live: Live = Live(TcpView(seen), console=Console(live=True), auto_refresh=False, transient=True)
    with live:
        yield lambda: live.update(TcpView(seen), refresh=True)


def _print(options: TcpOptions, seen: Follower) -> None:
    from storlab.cli.console import Console
    from storlab.cli.trace.tcp_view import TcpView

    to = sys.stderr if options.command else sys.stdout
    Console(to, width=None if to.isatty() else _WIDE).print(TcpView(seen, ended=True))


_WIDE = 132  # columns, where there is no terminal


def _finish(options: TcpOptions, seen: Follower) -> None:
    if options.json:
        show_json(document(seen))
    else:
        _print(options, seen)
    if seen.last is None or not seen.last.final:
        warn("storlab: the agent's program did not end cleanly: what came after its last count is missing")


def document(seen: Follower) -> str:
    """All that was seen since the start as JSON: metrics, named as those of the probe ``tcp``, and each connection."""
    totals = seen.totals()
    totals.connections = len(seen.connections()) + seen.ended
    totals.opened, totals.closed = seen.opened, seen.ended
    whole = {
        "elapsed": seen.elapsed,
        "metrics": {each.metric: each.value for each in values(totals)},
        "connections": [_entry(each) for each in seen.connections()],
    }
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()


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


def names(addresses: Sequence[str]) -> tuple[str, ...]:
    """As the kernel has them. Raises ``ValueError``."""
    import ipaddress

    return tuple(dict.fromkeys(str(ipaddress.ip_address(each.strip("[]"))) for each in addresses))
