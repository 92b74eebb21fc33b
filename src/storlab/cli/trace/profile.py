"""``storlab trace --profile``: where this machine's CPUs are, as a table at the end, as JSON, folded, or as a chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import orjson
from rich.console import RenderableType
from rich.text import Text

from storlab.base.errors import ParseError
from storlab.cli.output import write_output
from storlab.cli.trace.screen import Options, Screen, plain_table, tell
from storlab.probes.stacks import LINES, Line, Output, Profile, Started, boxes, folded, gathered, profile

_SHOWN = 40  # functions
_TITLES = {"kernel": "in the kernel", "user": "in programs", "idle": "idle"}


class Samples(Screen[Line]):
    """Groups, and the functions in which CPUs were longest."""

    first: ClassVar = Started

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lines: list[Line] = []
        self._output: Output | None = None

    def decode(self, chunk: bytes, source: str) -> list[Line]:
        return LINES.decode_all(chunk, source)

    def add(self, line: Any) -> bool:
        self._lines.append(line)
        return False

    @property
    def complete(self) -> bool:
        return self._output is not None

    def sound(self) -> bool:
        return self.complete

    def doing(self) -> str:
        return "sampling where CPUs are"

    def finish(self) -> None:
        try:
            self._output = gathered(self._lines, "the sampler")
        except ParseError as error:
            tell(str(error))
        else:
            self._found = profile(self._output)
            super().finish()

    def warnings(self) -> Iterable[str]:
        return self._output.warnings() if self._output is not None else ()

    def document(self) -> str:
        """Groups as samples, functions with their shares of busy CPU."""
        assert self._output is not None
        found, output = self._found, self._output
        groups = found.groups()
        busy = found.samples - groups["idle"]
        own, total = found.functions()
        functions = [
            {"function": name, "self": own[name] / busy, "total": count / busy} for name, count in total.most_common()
        ]
        whole = {
            "frequency": output.started.frequency, "cpus": output.started.cpus, "samples": found.samples,
            "lost": output.lost, "groups": groups, "functions": functions,
        }  # fmt: skip
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()

    def save(self) -> str | None:
        path = self.options.out
        if path is None:
            return None
        match path.suffix:
            case ".folded":
                data = "".join(f"{line}\n" for line in folded(self._found)).encode()
            case ".json":
                data = self.document().encode()
            case _:
                data = _drawn(path.suffix, self._found)
        write_output(path, data, "--out ")
        return ""

    def parts(self, width: int, height: int, ended: bool) -> Iterator[RenderableType]:
        return functions(self._found)


def functions(found: Profile, most: int = _SHOWN) -> Iterator[RenderableType]:
    samples, groups = found.samples, found.groups()
    busy = samples - groups["idle"]
    shares = ", ".join(f"{count / samples:.1%} {_TITLES[group]}" for group, count in groups.items() if samples)
    yield Text("Where CPUs were", style="bold").append(f"   {samples:,} samples: {shares}", style="not bold")
    if not busy:
        return
    own, total = found.functions()
    yield Text()
    table = plain_table(("function",), ("self", "with what it calls"))
    for name, count in own.most_common(most):
        table.add_row(Text(name), f"{count / busy:.1%}", f"{total[name] / busy:.1%}")
    yield table
    if len(own) > most:
        yield Text(f"… and {len(own) - most} more; shares are of busy CPU", style="dim")


def _drawn(suffix: str, found: Profile) -> bytes:
    from storlab.report.charts.panel import titled
    from storlab.report.charts.shares import icicle_chart
    from storlab.report.charts.theme import WIDE, to_png, to_svg

    svg = titled(to_svg(icicle_chart(boxes([found])), width=WIDE), f"{found.samples} samples of the CPUs")
    return to_png(svg) if suffix == ".png" else svg.encode()
