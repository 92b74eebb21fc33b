"""What of a probe's metrics may say why, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report.model.test_why import ACKS, COMPARISON
from storlab.analysis.why.watched import is_evidence
from storlab.probes.base import Probe
from storlab.registry import probe_types
from storlab.report.model.why import sentence
from storlab.tcp.metrics import METRICS


@pytest.mark.parametrize("probe", probe_types().values(), ids=probe_types())
def test_whatever_a_probe_counts_that_may_say_why_has_words_for_it(probe: type[Probe]) -> None:
    silent = [spec.name for spec in probe.metrics if is_evidence(spec) and not (spec.noun or spec.percentile)]
    assert silent == []


def test_acks_are_told_for_each_request() -> None:
    (spec,) = (spec for spec in METRICS if spec.name == "acks.per-request")
    told = replace(ACKS, metric=spec.name, noun=spec.noun, per="")
    assert sentence(COMPARISON, told) == "iSCSI: 46.0 ACKs per request, NVMe/TCP: 3.90"
