"""What is not the same in several runs, beside what they measured: as sentences, from their manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storlab.records.manifest import Manifest


def differences(runs: Mapping[str, Manifest]) -> tuple[str, ...]:
    """One sentence for each thing in which ``runs`` (name → manifest) differ, and what each carries as a caution."""
    nodes = {name: m.nodes.values() for name, m in runs.items()}
    told = {
        "Storlab": {name: m.storlab for name, m in runs.items()},
        "the kernel": {name: _once(f.kernel.release for f in facts if f.kernel) for name, facts in nodes.items()},
        "the machine": {name: _once(f.hostname for f in facts) for name, facts in nodes.items()},
        "the processor": {name: _once(f.cpus.model for f in facts if f.cpus) for name, facts in nodes.items()},
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


def _once(values: Iterable[str | None]) -> str:
    """One fact about all nodes, each value once."""
    return ", ".join(dict.fromkeys(value for value in values if value is not None))


def _sentence(what: str, values: Mapping[str, str]) -> str:
    each = "; ".join(f"{name}: {value or 'none recorded'}" for name, value in values.items())
    return f"The runs differ in {what} ({each})."
