"""A study from answers: `study_text` is a pure function, and what it gives loads, whatever the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storlab.templates.answers import Answers
from storlab.templates.layout import stack, table
from storlab.templates.stacks import Place, Row, factor_of, has_file, place_of

_ASKS: Mapping[str, str] = {
    "file-systems": "ext4, XFS or Btrfs",
    "safety": "Buffered, direct or synchronous",
    "queue-depths": "Queue depths",
    "block-sizes": "Block sizes",
    "databases": "MariaDB or PostgreSQL",
    "vm-disks": "Virtual machines' disks (raw, sparse or qcow2)",
    "shared-folders": "Shared folders (virtiofs or 9p)",
    "network-disks": "Disks over the network (NBD, iSCSI or NVMe/TCP)",
    "nothing": "One set-up",
}

_UNDER: Mapping[str, str] = {
    "small-files": "small files that must be safe",
    "log": "a log that must be safe",
    "random-write": "random writes",
    "random-read": "random reads",
    "mixed": "random reads and writes",
    "stream-write": "one long write",
    "stream-read": "one long read",
    "transactions": "transactions",
    "transactions-read": "transactions that read",
    "transactions-write": "transactions that write",
}

_PRIMARY: Mapping[str, str] = {
    "small-files": "create.rate",
    "log": "write.iops",
    "random-write": "write.iops",
    "random-read": "read.iops",
    "mixed": "iops",
    "stream-write": "write.bandwidth",
    "stream-read": "read.bandwidth",
}

_SYSBENCH: Mapping[str, str] = {
    "transactions": "oltp_read_write",
    "transactions-read": "oltp_read_only",
    "transactions-write": "oltp_write_only",
}

SWEEPS = ("queue-depths", "block-sizes")
"""What has numbers as levels."""

_DIRECT = (("ioengine", '"libaio"'), ("direct", "1", "past the page cache"))
_FIO: Mapping[str, tuple[Row, ...]] = {
    "log": (("rw", '"write"'), ("bs", '"4k"'), ("fdatasync", "1", "after each write")),
    "random-write": (("rw", '"randwrite"'), ("bs", '"4k"'), *_DIRECT, ("iodepth", "16")),
    "random-read": (("rw", '"randread"'), ("bs", '"4k"'), *_DIRECT, ("iodepth", "16")),
    "mixed": (("rw", '"randrw"'), ("bs", '"4k"'), ("rwmixread", "70", "%"), *_DIRECT, ("iodepth", "16")),
    "stream-write": (("rw", '"write"'), ("bs", '"1M"'), *_DIRECT, ("iodepth", "4")),
    "stream-read": (("rw", '"read"'), ("bs", '"1M"'), *_DIRECT, ("iodepth", "4")),
}


def study_text(answers: Answers, file: str = "study.toml") -> str:
    """The whole file; ``file`` is how its comments call it."""
    place = place_of(answers)
    parts = (
        _head(answers, file, place),
        table("parameters", "--set NAME=VALUE changes one for a run", _parameters(answers)),
        _factor(answers),
        *_nodes(answers, place),
        _load(answers),
        table("repeat", "each round runs every level once, in a random order", _repeat(answers)),
        *_compare(answers),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def title_of(answers: Answers) -> str:
    """What it finds out, in one line."""
    return f"{_ASKS[answers.compare]} under {_UNDER[answers.load]}"


def primary_of(answers: Answers) -> str:
    """The metric that verdicts are about."""
    return _PRIMARY.get(answers.load, "tps")


def run_command(answers: Answers, file: str) -> str:
    """What runs it, for as long as was answered."""
    return f"storlab run {file}" + ("" if answers.minutes is None else f" --budget {answers.minutes:g}")


def _head(answers: Answers, file: str, place: Place) -> list[str]:
    rows: list[Row] = [("schema", "1"), ("title", f'"{title_of(answers)}"')]
    rows.append(("primary", f'"{primary_of(answers)}"', "the metric that verdicts are about"))
    lines = [
        "# Written by `storlab new`: change whatever you like.",
        f"#   storlab plan {file}      what it would do; runs nothing",
        f"#   {run_command(answers, file)}",
        f"#   storlab list --metrics {file}      what else could be compared",
        "",
        *table("", "", rows),
    ]
    if answers.guests:
        return lines
    about = "# What the load works on, the lowest layer first. Words in braces are levels and parameters."
    return [*lines, "", about, f"stack = {stack(place.stack)}"]


def _parameters(answers: Answers) -> Iterator[Row]:
    if has_file(answers):
        yield "disk", f'"{answers.size}"', "the file that is the disk"
    if answers.compare == "databases":
        yield "tables", "4"
        yield "rows", "20000", "in each table"
        yield "threads", "4", "clients at once"
        yield "runtime", '"5s"'
    elif answers.load == "small-files":
        yield "files", "500"
        yield "bytes", '"4k"', "of each file"
    else:
        yield "size", '"256M"', "what is read and written of the disk, or the file"
        runtime = "2s" if answers.compare in SWEEPS else "3s"
        yield "runtime", f'"{runtime}"', "of each trial: many rounds say more than long trials"


def _factor(answers: Answers) -> list[str]:
    found = factor_of(answers)
    if found is None:
        return []
    name, levels = found
    sweep = "numbers, so a sweep: curves, not pairs"
    return table(f"factors.{name}", sweep if levels[0][0] == "levels" else "what is compared", levels)


def _nodes(answers: Answers, place: Place) -> Iterator[list[str]]:
    if not answers.guests:
        return
    if place.server:
        rows = [("kind", '"vm"'), ("memory", '"512M"'), ("stack", stack(place.server))]
        yield table("nodes.server", "has the disk, and serves it", rows)
    yield table("nodes.vm", "what carries the load", _clients(answers, place))


def _clients(answers: Answers, place: Place) -> Iterator[Row]:
    yield "kind", '"vm"'
    if answers.guests and answers.guests > 1:
        yield "count", str(answers.guests), "each with a disk or folder of its own; all start at once"
    yield "memory", '"1G"' if answers.compare == "databases" else '"512M"'
    if place.server:
        yield "from", '"server"'
    yield "stack", stack(place.stack)


def _load(answers: Answers) -> list[str]:
    on = [("on", '"vm"')] if answers.guests else []
    if answers.load in _SYSBENCH:
        words = f'test = "{_SYSBENCH[answers.load]}", threads = "{{threads}}", runtime = "{{runtime}}"'
        return table("workload.load", "", [*on, ("sysbench", f"{{ {words} }}")])
    if answers.load == "small-files":
        words = 'files = "{files}", size = "{bytes}", workers = 4, phases = ["create"], fsync = "file"'
        return table("workload.load", "", [*on, ("files", f"{{ {words} }}")])
    heading = [*table("workload.load", "", on), ""] if on else []
    return [*heading, *table("workload.load.fio", "fio's own options", _fio(answers))]


def _fio(answers: Answers) -> Iterator[Row]:
    rows = {row[0]: row for row in _FIO[answers.load]}
    if answers.compare == "safety":
        rows = {"rw": rows["rw"], "bs": rows["bs"], "ioengine": ("ioengine", '"psync"')}
        rows |= {name: (name, f'"{{mode.{name}}}"') for name in ("direct", "fsync")}
    if answers.compare == "block-sizes":
        rows["bs"] = ("bs", '"{bs}"')
    if answers.compare == "queue-depths":
        rows["iodepth"] = ("iodepth", '"{iodepth}"')
    if answers.compare == "shared-folders" and "direct" in rows:  # not every share takes O_DIRECT
        rows["direct"] = ("direct", "0", "the guest's cache takes part, as it does in use")
    yield from rows.values()
    yield "size", '"{size}"'
    yield "runtime", '"{runtime}"'
    yield "time_based", "true"


def _repeat(answers: Answers) -> list[Row]:
    until, least, most, said = '"decided"', 6, 20, 'until each comparison has a verdict; or "±5%"'
    if answers.compare == "nothing":
        until, least, most, said = '"max"', 5, 5, "there is nothing to decide: a fixed number of rounds"
    elif answers.compare in SWEEPS and answers.extent == "decided":
        least, most, said = 5, 8, 'a sweep: until each point is known to ±10 %; or "±5%"'
    elif answers.extent.endswith("%"):
        until, least, most, said = f'"±{answers.share}"', 6, 30, "until each ratio is known this well"
    if answers.extent == "look":
        until, least, most, said = '"max"', 2, 2, 'a look: take "decided", and more rounds, for verdicts'
    return [("until", until, said), ("min", str(least)), ("max", str(most))]


def _compare(answers: Answers) -> Iterator[list[str]]:
    """In guests, only where they are not emulated. Else, beside the primary metric, what reaches the disk for each byte
    of the load: a count, which noise hardly moves.
    """
    found = factor_of(answers)
    if answers.guests and found is not None and found[1][0][0] != "levels":
        rows = [("native", "true", "rates mislead under emulation: they are shown, but not judged")]
        yield table("[compare]", "all pairs of levels, by the primary metric", rows)
    writes = answers.load in ("small-files", "log", "random-write", "stream-write")
    if answers.compare == "file-systems" and writes and not answers.guests:
        yield table("[compare]", "all pairs of levels", [("metrics", f'["{primary_of(answers)}"]')])
        about = "also by what reaches the disk for each byte written: a count, which is decided early"
        yield table("[compare]", about, [("metrics", '["write.amplification"]')])
