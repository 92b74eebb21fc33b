"""What ``storlab trace --profile`` shows: groups, and the functions in which CPUs were longest."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from storlab.probes.stacks import Profile

_TITLES = {"kernel": "in the kernel", "user": "in programs", "idle": "idle"}


class ProfileView:
    """Draws it as wide as the terminal is; ``most``: functions."""

    def __init__(self, found: Profile, most: int) -> None:
        self._found, self._most = found, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        found, samples = self._found, self._found.samples
        groups = found.groups()
        busy = samples - groups["idle"]
        shares = ", ".join(f"{count / samples:.1%} {_TITLES[group]}" for group, count in groups.items() if samples)
        yield Text("Where CPUs were", style="bold").append(f"   {samples:,} samples: {shares}", style="not bold")
        if not busy:
            return
        own, total = found.functions()
        yield Text()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("function", no_wrap=True, overflow="ellipsis")
        table.add_column("self", justify="right", no_wrap=True)
        table.add_column("with what it calls", justify="right", no_wrap=True)
        for name, count in own.most_common(self._most):
            table.add_row(Text(name), f"{count / busy:.1%}", f"{total[name] / busy:.1%}")
        yield table
        if len(own) > self._most:
            yield Text(f"… and {len(own) - self._most} more; shares are of busy CPU", style="dim")
