"""What is not the same in several runs, beside what they measured: as sentences, from their manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storlab.records.manifest import Manifest


def differences(runs: Mapping[str, Manifest]) -> tuple[str, ...]:
    """One sentence for each thing in which ``runs`` (name → manifest) differ, and what each carries as a caution."""
    told = {
        "Storlab": {name: m.storlab for name, m in runs.items()},
        "the kernel": {name: _of_nodes(m, "kernel", "release") for name, m in runs.items()},
        "the machine": {name: _of_nodes(m, "hostname") for name, m in runs.items()},
        "the processor": {name: _of_nodes(m, "cpus", "model") for name, m in runs.items()},
        "--set": {name: " ".join(m.overrides) for name, m in runs.items()},
        "--only": {name: " ".join(m.only) for name, m in runs.items()},
    }
    found = [_sentence(what, values) for what, values in told.items() if len(set(values.values())) > 1]
    if len({m.study_text for m in runs.values()}) > 1 or len({str(m.inputs) for m in runs.values()}) > 1:
        found.append("The runs differ in the study itself: its text, or a file that it names.")
    if len(runs) > 1:
        found += [
            f"{name} could end by what it had measured (after {m.rounds[0]} to {m.rounds[1]} rounds). Intervals of "
            "runs that were not interleaved are for a number of rounds that was fixed before: `storlab run --rounds N`."
            for name, m in runs.items()
            if m.rounds[0] != m.rounds[1]
        ]
    cautions: dict[str, list[str]] = {}
    for name, m in runs.items():
        for caution in m.cautions:
            cautions.setdefault(caution, []).append(name)
    found += [f"{', '.join(names)}: {caution}" for caution, names in cautions.items()]
    return tuple(found)


def _of_nodes(manifest: Manifest, *keys: str) -> str:
    """One fact about all nodes, each value once."""
    values: list[str] = []
    for facts in manifest.nodes.values():
        value: Any = facts
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            values.append(str(value))
    return ", ".join(dict.fromkeys(values))


def _sentence(what: str, values: Mapping[str, str]) -> str:
    each = "; ".join(f"{name}: {value or 'none recorded'}" for name, value in values.items())
    return f"The runs differ in {what} ({each})."
