"""The options of ``storlab trace``, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from storlab.cli.options import String, Strings
from storlab.cli.trace.options import EVENT_FILES, TraceOptions
from storlab.errors import UserError

FILES = (".json", ".parquet", ".txt", ".csv")
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
    if profile:
        _refuse_beside_profile(
            {"--disk": disk, "--op": op, "--comm": comm, "--length": length, "--alignment": alignment,
             "--by-comm": by_comm, "--events": events, "--interval": interval, "--tcp": tcp, "--port": port,
             "--host": host, "--locks": locks}
        )  # fmt: skip
        raise typer.Exit(_profile(json, for_, out, command or []))
    if tcp or locks:
        others = {"--disk": disk, "--op": op, "--comm": comm, "--length": length, "--alignment": alignment}
        flags = {"--by-comm": by_comm, "--events": events, "--out": out}
        if wrong := [name for name, value in {**others, **flags}.items() if value]:
            shows = "--tcp shows connections" if tcp else "--locks shows waits for locks"
            raise UserError(f"{wrong[0]} is of block I/O, and {shows}: leave one of them out")
    if tcp and locks:
        raise UserError("--tcp shows connections, and --locks shows waits for locks: leave one of them out")
    if tcp:
        raise typer.Exit(_tcp(port or [], host or [], json, interval, for_, command or []))
    if port or host:
        raise UserError(f"--{'port' if port else 'host'} is of connections: it needs --tcp")
    if locks:
        raise typer.Exit(_locks(json, interval, for_, command or []))
    from storlab.cli.trace.run import kernel_name, run

    if out is not None:
        _check_file(out)
    if events and json and not (out is not None and out.suffix in EVENT_FILES):
        files = " or ".join(EVENT_FILES)
        raise UserError(f"--json shows counts, and --events single requests: with both, these need --out FILE{files}")
    options = TraceOptions(
        disks=tuple(dict.fromkeys(kernel_name(each) for each in disk or [])),
        operations=tuple(dict.fromkeys(each.lower().replace("-", "_") for each in op or [])),
        comms=tuple(dict.fromkeys(comm or [])),
        lengths=tuple(_length(each) for each in length or []),
        alignments=tuple(_alignment(each) for each in alignment or []),
        by_comm=by_comm,
        events=events,
        json=json,
        interval=None if interval is None else _time("--interval", interval),
        period=None if for_ is None else _time("--for", for_),
        out=out,
        command=tuple(command or []),
    )
    raise typer.Exit(run(options))


def _tcp(
    ports: Sequence[int],
    hosts: Sequence[str],
    json: bool,
    interval: str | None,
    for_: str | None,
    command: Sequence[str],
) -> int:
    from storlab.cli.trace.tcp import TcpOptions, names, run

    for each in ports:
        if not 0 < each < 65536:
            raise UserError(f"--port {each}: a port is a number from 1 to 65535")
    if len(ports) > _MOST or len(hosts) > _MOST or len(ports) * len(hosts) > _MOST:
        raise UserError(f"--port and --host: {_MOST} at most, and as many pairs of both")
    try:
        addresses = names(hosts)
    except ValueError as error:
        raise UserError(f"--host: {error}: write an address, not a name") from None
    return run(
        TcpOptions(
            ports=tuple(dict.fromkeys(ports)),
            hosts=addresses,
            json=json,
            interval=None if interval is None else max(_time("--interval", interval), _SHORTEST_LOOK),
            period=None if for_ is None else max(_time("--for", for_), _SHORTEST_LOOK),
            command=tuple(command),
        )
    )


def _refuse_beside_profile(others: Mapping[str, object]) -> None:
    if wrong := [name for name, value in others.items() if value]:
        raise UserError(f"--profile samples CPUs and takes no {wrong[0]}: leave one of them out")


def _profile(json: bool, for_: str | None, out: Path | None, command: Sequence[str]) -> int:
    from storlab.cli.trace.profile import FILES as PROFILES
    from storlab.cli.trace.profile import ProfileOptions, run

    if out is not None:
        _check_file(out, PROFILES)
    period = None if for_ is None else max(_time("--for", for_), _SHORTEST_LOOK)
    return run(ProfileOptions(json=json, period=period, out=out, command=tuple(command)))


def _locks(json: bool, interval: str | None, for_: str | None, command: Sequence[str]) -> int:
    from storlab.cli.trace.locks import LockOptions, run

    return run(
        LockOptions(
            json=json,
            interval=None if interval is None else max(_time("--interval", interval), _SHORTEST_LOOK),
            period=None if for_ is None else _time("--for", for_),
            command=tuple(command),
        )
    )


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
    from storlab.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _time(option: str, text: str) -> float:
    from storlab.units import parse_duration

    try:
        seconds = parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    if seconds < _SHORTEST:
        raise UserError(f"{option} {text}: must be 1 ms or more")
    return seconds


def _check_file(path: Path, files: Sequence[str] = FILES) -> None:
    if path.suffix not in files:
        raise UserError(f"--out {path}: the ending says what to write, and is one of {', '.join(files)}")
    if path.exists() and not path.is_file():
        raise UserError(f"--out {path}: {'is a folder' if path.is_dir() else 'is no regular file'}")
    if not path.absolute().parent.is_dir():
        from storlab.units import shown

        raise UserError(f"--out {path}: the folder {shown(str(path.parent))} does not exist")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UserError(f"cannot write --out {path}")
