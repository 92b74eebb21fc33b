"""``manifest.json``: what was asked, planned and found, enough to report and to resume a run years later; and in
what those of several runs differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Struct

from storlab.base.errors import RecordsError
from storlab.base.limits import ROUNDS
from storlab.base.record import Count, Number, RunId, read_record, to_json
from storlab.base.text import grouped
from storlab.findings import About, AnyFinding, Reported
from storlab.findings.runs import Rested, RoundsNotFixed, RunsDiffer
from storlab.layers.block.identity import DeviceIdentity
from storlab.nodes.agent.protocol import Clocks, Cpus, Kernel, Memory, Tool
from storlab.records.files import write_durably
from storlab.tools.importer import Imported

if TYPE_CHECKING:
    from storlab.study.study import Study


NAME = "manifest.json"
LOCK = "lock"
"""Made first of all in a run's folder; held by the process that executes, resumes or cleans the run."""
FORMAT = 3


class NodeFacts(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a node's agent says of it; of a virtual machine, which is there when a trial wants it, only its kind."""

    kind: str
    kernel: Kernel | None = None
    os: str | None = None
    hostname: str | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    modules: list[str] = []
    filesystems: list[str] = []
    clocks: Clocks | None = None
    cgroup: str | None = None
    uid: Count | None = None
    virtualization: str | None = None
    tools: dict[str, Tool | None] = {}


class PlannedChain(Struct, frozen=True, forbid_unknown_fields=True):
    """The stack of a group of nodes, or one of its further chains by ``name``: from its lowest layer on.

    Layers have ``on``, the nodes where they are, ``keep``, and their own keys, completed by what holds without a word.
    """

    nodes: str
    name: str
    layers: list[dict[str, Any]]


class PlannedCell(Struct, frozen=True, forbid_unknown_fields=True):
    """One cell; ``unsupported``: why it can't be run here."""

    cell: Number
    levels: dict[str, str]
    chains: list[PlannedChain]
    workloads: list[str]
    unsupported: list[str]


class Planned(Struct, frozen=True, forbid_unknown_fields=True):
    """The plan: each factor with its levels, and what is run in each cell."""

    factors: dict[str, list[str]]
    cells: list[PlannedCell]


class PlannedDevice(Struct, frozen=True, forbid_unknown_fields=True):
    """A device of the user's: the id of its machine, its name in the study, and what that led to in the plan."""

    machine: str
    path: str
    device: DeviceIdentity


Order = Literal["shuffled", "together"]
"""Whether cells that are compared follow each other within a round; in runs of older versions they did not."""


class Rest(Struct, frozen=True, forbid_unknown_fields=True):
    """A cell that is not run again: ``after`` the last round in which it was due."""

    cell: Number
    after: Number
    why: Rested


class Aim(Struct, frozen=True, forbid_unknown_fields=True):
    """From the round after ``after`` on, the run was to end with round ``last``, as was known before that round."""

    after: Annotated[int, msgspec.Meta(ge=0, le=ROUNDS)]
    last: Annotated[int, msgspec.Meta(ge=1, le=ROUNDS)]


class Horizon(Struct, frozen=True, forbid_unknown_fields=True):
    """What the evidence for differences is tuned to (``analysis/stats/horizon.py``), recorded before the first round.

    ``preset`` and ``confidence`` never change; each ``aims`` was recorded before the rounds that it governs.
    """

    preset: Literal["A", "B"]
    confidence: Annotated[float, msgspec.Meta(ge=0.5, lt=1)]
    aims: tuple[Aim, ...]


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """One run. ``inputs`` are the files that the study names (fio job files), by the name used there."""

    run: RunId
    title: str
    storlab: str
    argv: tuple[str, ...]
    started: datetime
    description: str = ""
    study_file: str = ""
    study_text: str = ""
    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    inputs: dict[str, str] = {}
    seed: Count = 0
    finished: datetime | None = None
    stopped: AnyFinding | None = None  # why the run ended; null while it goes on
    rounds: tuple[Number, Number] = (1, 1)  # at least, at most
    assigned: tuple[Number, Number] | None = None  # of these it did the first to the last, and another run the others
    nodes: dict[str, NodeFacts] = {}
    plan: Planned | None = None
    devices: tuple[PlannedDevice, ...] = ()
    platform_notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()  # sentences without which the numbers would be misread
    emulated: bool = False  # whether nodes are virtual machines without hardware virtualisation
    unconfined: bool = False  # loads could touch all that Storlab itself may
    allowed: tuple[str, ...] = ()  # what the study wanted beyond its scratch: code=/opt/qemu
    gates: tuple[str, ...] = ()  # of `--fail-on`
    optional: dict[str, tuple[str, ...]] = {}  # of `--optional`: by factor, levels that may be unsupported
    minutes: float | None = None  # of `--budget`
    spent: bool = False  # it ended because one more round would have exceeded them
    order: Order = "shuffled"  # how the order within rounds is drawn from the seed
    rest_from: Number | None = None  # rounds before cells may rest; null: none ever does
    rests: tuple[Rest, ...] = ()  # cells that are due no longer; all others are due in every round
    horizon: Horizon | None = None  # null: nothing was known of the number of rounds
    until: str | None = None  # of `storlab resume --until`: the rule by which it stops, in the place of the study's
    imported: Imported | None = None  # from what; of none, it was run
    suite: str = ""  # of a run of a suite, its name; it has no study
    format: int = FORMAT

    def study(self) -> Study:
        """The study as it was run. Raises ``RecordsError`` where there was none."""
        if self.imported is not None:
            raise RecordsError(
                "the run was imported and has no study: `storlab report` shows it, nothing runs it again"
            )
        if self.suite:
            raise RecordsError(
                f"this is a run of the suite {self.suite}, and not of a study: `storlab suite report` shows it, "
                "`storlab suite resume` resumes it"
            )
        from storlab.study.study import parse_study  # a third of a second, which imported runs can do without

        return parse_study(self.study_text.encode(), self.study_file, self._input, self.overrides, self.only)

    def _input(self, name: str) -> str:
        if name not in self.inputs:
            raise RecordsError(f"the run's manifest has no {name} among its inputs, which the study names")
        return self.inputs[name]


class _Head(Struct):
    """What a manifest of any format has."""

    format: int


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` durably."""
    write_durably(folder / NAME, to_json(manifest))


def read_manifest(folder: Path) -> Manifest:
    """Read it back. Raises ``RecordsError`` where the folder is no run, or of another version of Storlab."""
    path = folder / NAME
    try:
        if read_record(path, _Head).format != FORMAT:
            raise RecordsError(f"{path} is not of format {FORMAT}: it comes from another version of Storlab")
        return read_record(path, Manifest)
    except FileNotFoundError:
        raise RecordsError(_no_run(folder)) from None
    except NotADirectoryError:
        raise RecordsError(f"{folder} is a file, not the folder of a run") from None


def node_facts(kind: str, facts: Mapping[str, object]) -> NodeFacts:
    """What an agent said, as a record. Raises ``RecordsError``."""
    try:
        return msgspec.convert({**facts, "kind": kind}, NodeFacts)
    except msgspec.ValidationError as error:
        raise RecordsError(f"the agent's facts are not what they should be: {error}") from None


def _no_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist"
    if (folder / LOCK).exists():
        return (
            f"{folder} holds no run yet: `storlab run` was stopped there before it set anything up. "
            f"Nothing is lost; start over with `storlab run STUDY --out {folder}`"
        )
    return f"{folder} is not a run: it has no manifest.json"


def differences(runs: Mapping[str, Manifest]) -> tuple[AnyFinding, ...]:
    """Each thing in which ``runs`` (name → manifest) differ, and what each carries as a caution."""
    nodes = {name: m.nodes.values() for name, m in runs.items()}
    told = {
        "Storlab": {name: m.storlab for name, m in runs.items()},
        "the kernel": {name: _once(f.kernel.release for f in facts if f.kernel) for name, facts in nodes.items()},
        "the machine": {name: _once(f.hostname for f in facts) for name, facts in nodes.items()},
        "the processor": {name: _once(f.cpus.model for f in facts if f.cpus) for name, facts in nodes.items()},
        "--set": {name: " ".join(m.overrides) for name, m in runs.items()},
        "--only": {name: " ".join(m.only) for name, m in runs.items()},
    }
    found: list[AnyFinding] = [
        RunsDiffer(what, tuple(values.items())) for what, values in told.items() if len(set(values.values())) > 1
    ]
    if len({m.study_text for m in runs.values()}) > 1 or len({str(m.inputs) for m in runs.values()}) > 1:
        found.append(RunsDiffer("the study"))
    if len(runs) > 1:
        found += [RoundsNotFixed(name, *m.rounds) for name, m in runs.items() if m.rounds[0] != m.rounds[1] or m.rests]
    cautions = grouped((caution, name) for name, m in runs.items() for caution in m.cautions)
    found += [About("side", (", ".join(names),), Reported(caution)) for caution, names in cautions.items()]
    return tuple(found)


def _once(values: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value is not None))
