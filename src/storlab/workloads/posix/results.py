"""What the checks printed, a line of JSON each. A guest's root may have written it, so it is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from storlab.base.errors import CommandFailed, ParseError, TimedOut
from storlab.measurements import CHECK_COLUMNS, Measurements, metric_frame
from storlab.nodes.process import ExitRecord, telling
from storlab.workloads.base import bytes_of, elapsed_values, read_exit
from storlab.workloads.posix import COUNTS, SERVER, SERVER_FILE

_MOST = 512 * 1024  # bytes of all lines; all checks with the longest reasons take 40 KiB, those of pjdfstest 250
_WORDS = 5  # of the command, before options and names


class Check(BaseModel):
    """One line. A reason is what the checks cut it to: 200 characters that can be printed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    check: Annotated[str, Field(max_length=64)]
    outcome: Literal["pass", "fail", "unsupported"]
    reason: Annotated[str, Field(max_length=200)]


def read_results(raw: Path) -> Measurements:
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if ended.code != 0:
        raise _unfinished(ended, said)
    asked = [word for word in ended.argv[_WORDS:] if not word.startswith("--")]
    checks = read_checks(bytes_of(raw / "stdout"), asked, str(raw / "stdout"))
    if said_of_server := bytes_of(raw / SERVER_FILE):
        checks += read_checks(said_of_server, [SERVER], str(raw / SERVER_FILE))
    count = Counter(check.outcome for check in checks)
    numbers = (count["pass"], count["fail"], count["unsupported"])
    values = [spec.value(number) for spec, number in zip(COUNTS, numbers, strict=True)]
    rows = [(check.check, check.outcome, check.reason) for check in checks]
    return Measurements(
        metric_frame([*values, *elapsed_values(ended)]),
        checks=pl.DataFrame(rows, schema=CHECK_COLUMNS, orient="row"),
    )


def read_checks(output: bytes, asked: Sequence[str], source: str = "") -> list[Check]:
    """One of each that was ``asked``, in that order. Raises ``ParseError`` for anything else."""
    if len(output) > _MOST:
        raise ParseError(f"{len(output)} bytes, and not more than {_MOST} are expected of the checks", source)
    lines = output.splitlines()
    if len(lines) != len(asked):
        raise ParseError(f"{len(lines)} lines, and there were {len(asked)} checks", source)
    numbered = enumerate(zip(lines, asked, strict=True), start=1)
    return [_read(line, name, f"{source}:{number}") for number, (line, name) in numbered]


def _read(line: bytes, name: str, source: str) -> Check:
    try:
        check = Check.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ParseError(f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}", source) from None
    if check.check != name:
        raise ParseError(f"check: not {name}, which comes here", source)
    if not check.reason.isprintable():
        raise ParseError("reason: holds characters that cannot be printed", source)
    return check


def _unfinished(ended: ExitRecord, said: str) -> TimedOut | CommandFailed:
    if ended.timed_out:
        return TimedOut("the checks were stopped at the time-out", said)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    how = f"status {ended.code}" if ended.code is not None else f"{ended.signal}"
    return CommandFailed(f"the checks ended with {how}: {telling(lines) if lines else 'no message'}", said)
