"""``storlab trace --profile``: where this machine's CPUs are, as a table at the end, as JSON, folded, or as a chart."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from storlab.agent_binary import agent_path
from storlab.cli.output import show_json, warn
from storlab.cli.status import OWN_FAULT
from storlab.cli.trace.run import Interruptible, TraceChild, signals, tracing
from storlab.errors import ParseError, UserError
from storlab.probes.stacks import LINES, Line, Output, Profile, Started, boxes, folded, gathered, profile
from storlab.records.files import write_whole

FILES = (".folded", ".svg", ".png", ".json")
_WIDE = 132  # columns, where there is no terminal
_SHOWN = 40  # functions


@dataclass(frozen=True)
class ProfileOptions:
    """``period`` in s; ``out``: a file, whose ending is one of ``FILES``."""

    json: bool = False
    period: float | None = None
    out: Path | None = None
    command: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Of the agent's program."""
        return ["--for", f"{self.period:.6f}"] if self.period is not None else []


def run(options: ProfileOptions) -> int:
    """Sample until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    return asyncio.run(_watch(options))


async def _watch(options: ProfileOptions) -> int:
    work = Interruptible()
    lines: list[Line] = []
    with signals(work.signalled):
        async with tracing([str(agent_path()), "profile", *options.arguments()], LINES.decode_all) as tracer:
            work.tracer = tracer
            lines.append(await tracer.started(Started))
            if not options.command:
                warn("storlab: sampling where CPUs are; Ctrl-C ends it")
            following = asyncio.create_task(_follow(tracer, lines))
            status = await work.command(options.command, aside=options.json) if options.command else 0
            if options.command or work.signal is not None:
                tracer.end()
            await following
    try:
        output = gathered(lines, "the sampler")
    except ParseError as error:
        warn(f"storlab: {error}")
        return status or OWN_FAULT
    _show(options, output)
    return status


async def _follow(tracer: TraceChild[Line], lines: list[Line]) -> None:
    while found := await tracer.lines():
        lines += found


def _show(options: ProfileOptions, output: Output) -> None:
    found = profile(output)
    if options.json:
        show_json(orjson.dumps(document(output, found), option=orjson.OPT_INDENT_2).decode())
    else:
        from storlab.cli.console import Console
        from storlab.cli.trace.profile_view import ProfileView

        to = sys.stderr if options.command else sys.stdout
        Console(to, width=None if to.isatty() else _WIDE).print(ProfileView(found, _SHOWN))
    for sentence in output.warnings():
        warn(f"storlab: {sentence}")
    if options.out is not None:
        _write(options.out, output, found)


def document(output: Output, found: Profile) -> dict[str, object]:
    """All that was seen, as JSON: groups as samples, functions with their shares of busy CPU."""
    groups = found.groups()
    busy = found.samples - groups["idle"]
    own, total = found.functions()
    functions = [
        {"function": name, "self": own[name] / busy, "total": count / busy} for name, count in total.most_common()
    ]
    return {
        "frequency": output.started.frequency, "cpus": output.started.cpus, "samples": found.samples,
        "lost": output.lost, "groups": groups, "functions": functions,
    }  # fmt: skip


def _write(path: Path, output: Output, found: Profile) -> None:
    match path.suffix:
        case ".folded":
            data = "".join(f"{line}\n" for line in folded(found)).encode()
        case ".json":
            data = orjson.dumps(document(output, found), option=orjson.OPT_INDENT_2)
        case _:
            data = _drawn(path.suffix, found)
    try:
        write_whole(path.resolve(), data)  # where a link leads, so that it stays one
    except OSError as error:
        raise UserError(f"cannot write --out {path}: {error.strerror}") from None


def _drawn(suffix: str, found: Profile) -> bytes:
    from storlab.report.charts.icicle import icicle_chart
    from storlab.report.charts.panel import titled
    from storlab.report.charts.theme import WIDE, to_png, to_svg

    svg = titled(to_svg(icicle_chart(boxes([found])), width=WIDE), f"{found.samples} samples of the CPUs")
    return to_png(svg) if suffix == ".png" else svg.encode()
