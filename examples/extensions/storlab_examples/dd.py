"""Workload ``dd``: sequential writes by dd(1), each on stable storage before the next one begins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from storlab.api import (
    CommandFailed,
    Dir,
    Launch,
    Measurements,
    MetricSpec,
    Needs,
    ParseError,
    RunContext,
    Size,
    Workload,
    metric_frame,
    read_exit,
)

_METRICS = (
    MetricSpec("write.bandwidth", "B/s", "higher", quantity="throughput"),
    MetricSpec("write.iops", "1/s", "higher", quantity="throughput"),
    MetricSpec("write.bytes", "B", quantity="bytes written"),
    MetricSpec("elapsed", "s", "lower", "max"),
)
_RESULT = re.compile(r"^(\d+) bytes? .*copied, (\d+(?:\.\d+)?(?:e-\d+)?) s,", re.MULTILINE)


class DdWorkload(Workload):
    """Writes one file from start to end with O_DSYNC."""

    kind: ClassVar[str] = "dd"
    accepts: ClassVar = (Dir,)

    bs: Size = Field(4096, description="Bytes of one write.")
    count: int = Field(ge=1, description="Number of writes.")
    overwrite: bool = Field(False, description="Write the file once before, unmeasured, so that no block is new.")

    def declares(self) -> tuple[MetricSpec, ...]:
        return _METRICS

    def needs(self) -> Needs:
        return Needs(programs=("dd",))

    def space(self) -> int:
        return self.bs * self.count

    async def prepare(self, place: RunContext) -> None:
        if self.overwrite:
            await place.node.run(["dd", *self._operands(place), "conv=fsync", "status=none"])

    async def launch(self, place: RunContext) -> Launch:
        argv = ("dd", *self._operands(place), "oflag=dsync", "conv=notrunc")
        return Launch(argv, env={"LC_ALL": "C"}, cwd=place.folder)

    def _operands(self, place: RunContext) -> list[str]:
        return ["if=/dev/zero", f"of={place.path}/dd", f"bs={self.bs}", f"count={self.count}"]

    def parse(self, raw: Path) -> Measurements:
        said = (raw / "stderr").read_text(errors="replace") if (raw / "stderr").exists() else ""
        if read_exit(raw).code != 0:
            raise CommandFailed(f"dd failed: {said.strip()}")
        return parse_dd(said, str(raw / "stderr"))


def parse_dd(said: str, source: str = "") -> Measurements:
    """``8192000 bytes (8.2 MB, 7.8 MiB) copied, 1.23 s, 6.7 MB/s`` as metrics. Raises ``ParseError``."""
    blocks = re.search(r"^(\d+)\+\d+ records out$", said, re.MULTILINE)
    result = _RESULT.search(said)
    if blocks is None or result is None or float(result[2]) <= 0:
        raise ParseError("no result of dd", source)
    size, ios, seconds = int(result[1]), int(blocks[1]), float(result[2])
    found = (size / seconds, ios / seconds, size, seconds)
    return Measurements(metric_frame(spec.value(value) for spec, value in zip(_METRICS, found, strict=True)))
