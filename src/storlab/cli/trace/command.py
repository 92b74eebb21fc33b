"""The options of ``storlab trace``, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import String, Strings
from storlab.cli.output import warn

if TYPE_CHECKING:
    from storlab.cli.trace.screen import Options, Screen

_FILES, _PROFILES = (".json", ".parquet", ".txt", ".csv"), (".folded", ".svg", ".png", ".json")
_SHORTEST = 0.001  # s
_SHORTEST_LOOK = 0.01  # s, between two looks at connections
_MOST = 16  # endpoints, as the agent has it
_LONGEST_REQUEST = 1 << 32  # bytes; the kernel counts them in 32 bits


def trace(
    command: Annotated[
        Strings, Argument(metavar="[-- COMMAND ...]", help="Trace while this runs.", show_default=False)
    ] = None,
    disk: Annotated[Strings, Option("--disk", metavar="DISK", help="Only this disk or partition.")] = None,
    op: Annotated[Strings, Option("--op", metavar="OP", help="Only read, write, flush, discard, …")] = None,
    comm: Annotated[Strings, Option("--comm", metavar="NAME", help="Only requests of this command.")] = None,
    length: Annotated[Strings, Option("--length", metavar="SIZE", help="Only of this length.")] = None,
    alignment: Annotated[Strings, Option("--alignment", metavar="SIZE", help="Only with this joint alignment.")] = None,
    interval: Annotated[
        String,
        Option("--interval", metavar="TIME", help="How often to show the counts; live, every second by default."),
    ] = None,
    for_: Annotated[String, Option("--for", metavar="TIME", help="End after this time: 30s.")] = None,
    by_comm: Annotated[bool, Option("--by-comm", help="Count each command separately.")] = False,
    events: Annotated[bool, Option("--events", help="Each request by itself, a row as it is issued.")] = False,
    json: Annotated[bool, Option("--json", help="blkalgn's JSON, keys in bytes, instead of tables.")] = False,
    tcp: Annotated[bool, Option("--tcp", help="TCP connections instead: segments, ACKs, retransmissions.")] = False,
    port: Annotated[
        list[int] | None, Option("--port", metavar="PORT", help="With --tcp: only with this port at either end.")
    ] = None,
    host: Annotated[
        Strings, Option("--host", metavar="ADDRESS", help="With --tcp: only with this address at either end.")
    ] = None,
    locks: Annotated[
        bool, Option("--locks", help="Locks of the kernel instead: who waits, how often, how long.")
    ] = False,
    profile: Annotated[
        bool, Option("--profile", help="CPUs instead: functions they are in, sampled with stacks.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            metavar="FILE",
            help="Also write the result: .json, .parquet, .txt, .csv; of --profile .json, .folded, .svg, .png.",
        ),
    ] = None,
) -> None:
    """Watch block I/O, TCP connections, waits for locks, or CPUs.

    Lengths, alignment, flags and latencies of requests; with --tcp, segments, ACKs and round trips; with --locks, waits
    for locks of the kernel by type and caller: all counted exactly, in the kernel, by eBPF. With --profile, samples of
    where CPUs are. Needs root. Until Ctrl-C, or while COMMAND runs: then its exit status is passed on, and what was
    seen goes to standard error.
    """
    block: dict[str, object] = {
        "--disk": disk,
        "--op": op,
        "--comm": comm,
        "--length": length,
        "--alignment": alignment,
    }
    block |= {"--by-comm": by_comm, "--events": events}
    ends: dict[str, object] = {"--port": port, "--host": host}
    if profile:
        others = {**block, "--interval": interval, "--tcp": tcp, **ends, "--locks": locks}
        _refuse(others, "--profile samples CPUs and takes no {}")
    if tcp or locks:
        shows = "--tcp shows connections" if tcp else "--locks shows waits for locks"
        _refuse(block | {"--out": out}, f"{{}} is of block I/O, and {shows}")
    if tcp:
        _refuse({"--locks": locks}, "--tcp shows connections, and {} shows waits for locks")
    elif wrong := next((name for name, value in ends.items() if value), None):
        raise UserError(f"{wrong} is of connections: it needs --tcp")
    if out is not None:
        _check_file(out, _PROFILES if profile else _FILES)
    from storlab.cli.trace.screen import EVENT_FILES, Options, watch

    if events and json and not (out is not None and out.suffix in EVENT_FILES):
        files = " or ".join(EVENT_FILES)
        raise UserError(f"--json shows counts, and --events single requests: with both, these need --out FILE{files}")
    options = Options(
        program="tcp" if tcp else "locks" if locks else "profile" if profile else "trace",
        json=json,
        interval=None if interval is None else _time("--interval", interval, _SHORTEST_LOOK if tcp or locks else 0),
        period=None if for_ is None else _time("--for", for_, _SHORTEST_LOOK if tcp or profile else 0),
        out=out,
        command=tuple(command or []),
        events=events,
    )
    if tcp:
        options = replace(options, words=tuple(_endpoints(port or [], host or [])))
    elif options.program == "trace":
        from storlab.cli.trace.block import kernel_name, notes_on

        disks = list(dict.fromkeys(kernel_name(each) for each in disk or []))
        filters: dict[str, Iterable[object]] = {
            "--disk": disks,
            "--op": dict.fromkeys(each.lower().replace("-", "_") for each in op or []),
            "--comm": dict.fromkeys(comm or []),
            "--length": [_length(each) for each in length or []],
            "--alignment": [_alignment(each) for each in alignment or []],
        }
        words = [word for name, values in filters.items() for value in values for word in (name, str(value))]
        flags = [name for name, given in (("--by-comm", by_comm), ("--events", events)) if given]
        options = replace(options, words=(*words, *flags))
        for sentence in notes_on(disks):
            warn(f"storlab: {sentence}")
    raise typer.Exit(watch(options, _screen_of))


def _screen_of(options: Options) -> Screen[Any]:
    match options.program:
        case "tcp":
            from storlab.cli.trace.tcp import Connections

            return Connections(options)
        case "locks":
            from storlab.cli.trace.locks import Waits

            return Waits(options)
        case "profile":
            from storlab.cli.trace.profile import Samples

            return Samples(options)
        case _:
            from storlab.cli.trace.block import Requests

            return Requests(options)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raise ``UserError`` for the first of ``options`` that is given."""
    if wrong := next((name for name, value in options.items() if value), None):
        raise UserError(f"{why.format(wrong)}: leave one of them out")


def _endpoints(ports: Sequence[int], hosts: Sequence[str]) -> Iterator[str]:
    """Connections with one of the ports, and one of the addresses, at either end, as options of the agent's."""
    from ipaddress import ip_address

    for each in ports:
        if not 0 < each < 65536:
            raise UserError(f"--port {each}: a port is a number from 1 to 65535")
    if max(len(ports), len(hosts), len(ports) * len(hosts)) > _MOST:
        raise UserError(f"--port and --host: {_MOST} at most, and as many pairs of both")
    try:  # as the kernel has them
        addresses = dict.fromkeys(str(ip_address(each.strip("[]"))) for each in hosts)
    except ValueError as error:
        raise UserError(f"--host: {error}: write an address, not a name") from None
    for host in [f"[{address}]" if ":" in address else address for address in addresses] or ["*"]:
        for port in dict.fromkeys(ports) or ["*"]:
            if (host, port) != ("*", "*"):
                yield from ("--endpoint", f"{host}:{port}")


def _length(text: str) -> int:
    length = _size("--length", text)
    if length >= _LONGEST_REQUEST:
        raise UserError(f"--length {text}: no request is of 4 GiB or more")
    return length


def _alignment(text: str) -> int:
    alignment = _size("--alignment", text)
    if alignment < 512 or alignment.bit_count() != 1 or alignment >= _LONGEST_REQUEST:
        raise UserError(f"--alignment {text}: an alignment is a power of two from 512 on, below 4 GiB")
    return alignment


def _size(option: str, text: str) -> int:
    from storlab.base.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _time(option: str, text: str, least: float) -> float:
    from storlab.base.units import parse_duration

    try:
        seconds = parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    if seconds < _SHORTEST:
        raise UserError(f"{option} {text}: must be 1 ms or more")
    return max(seconds, least)


def _check_file(path: Path, files: Sequence[str]) -> None:
    if path.suffix not in files:
        raise UserError(f"--out {path}: the ending says what to write, and is one of {', '.join(files)}")
    if path.exists() and not path.is_file():
        raise UserError(f"--out {path}: {'is a folder' if path.is_dir() else 'is no regular file'}")
    if not path.absolute().parent.is_dir():
        from storlab.base.units import shown

        raise UserError(f"--out {path}: the folder {shown(str(path.parent))} does not exist")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UserError(f"cannot write --out {path}")
