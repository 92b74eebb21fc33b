"""What the metrics of made-up runs are, as who would have yielded them declares it."""

from __future__ import annotations

from storlab.formats.fio.declared import declared as of_fio
from storlab.metrics import Declarations, MetricSpec
from storlab.records.tables import derived
from storlab.registry import probe_types


def declared(*sources: str, specs: tuple[MetricSpec, ...] | None = None) -> Declarations:
    """Those of ``sources``, by default fio's, with what follows from them; and those of all probes."""
    own = of_fio() if specs is None else specs
    ends = ("", "@host")
    probes = ((f"probe:{kind}{end}", cls().declares()) for kind, cls in probe_types().items() for end in ends)
    return Declarations.union([*((source, (*own, *derived(own))) for source in sources), *probes])
