"""Results as lab notes keep them: fio's output of each machine that took part, and what ``w`` printed on their host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from storlab.formats.load_averages import LOADS, HostLoad, parse_host_loads
from storlab.importing.fio.importer import FioImporter
from storlab.importing.imported import HOST_LOAD
from storlab.importing.importer import Part
from storlab.importing.signatures import is_of
from storlab.measurements import Measurements, metric_frame


class FalconImporter(FioImporter):
    """A trial for each moment: nodes' files of the same name, and the host's, are of one."""

    kind: ClassVar[str] = "falcon"
    raw_name: ClassVar[str] = "output"
    unknown: ClassVar[str] = "on which machines it was, what else these did, nor what happened between the runs"
    repeats: ClassVar[bool] = False
    by_node: ClassVar[bool] = True

    def knows(self, text: bytes) -> bool:
        return is_of(FioImporter.kind, text) or b"load average" in text

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if not is_of(FioImporter.kind, text) and (loads := parse_host_loads(text.decode(errors="replace"), source)):
            return [_load(each) for each in loads]
        return super().read(text, source, options)


def _load(host: HostLoad) -> Part:
    values = (spec.value(value) for spec, value in zip(LOADS, host.averages, strict=True))
    return Part(Measurements(metric_frame(values), facts=host.facts, declared=LOADS), source=HOST_LOAD)
