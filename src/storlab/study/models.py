"""Every model that a study's keys are read with, by where they stand in the file."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from storlab.nodes.shaping.keys import Network
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.study.schema import PowerCuts, StudyFile, Trial, group_model


def study_models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Also those that other packages add."""
    yield "study", StudyFile
    yield from ((f"node {kind}", group_model(kind)) for kind in node_kinds())
    yield "network", Network
    yield from ((f"layer {kind}", cls) for kind, cls in layer_types().items())
    yield from ((f"workload {kind}", cls) for kind, cls in workload_types().items())
    yield from ((f"probe {kind}", cls) for kind, cls in probe_types().items())
    yield "trial", Trial
    yield "crash", PowerCuts
