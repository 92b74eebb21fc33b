"""Cells: one for each combination of levels, with everything that is run in it, read and checked."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from storlab.errors import Problem
from storlab.layers.base import Layer
from storlab.layers.registry import layer_types
from storlab.layers.resources import Dir, Disk
from storlab.layers.stack import type_errors
from storlab.probes.base import Probe
from storlab.probes.registry import probe_types
from storlab.study import positions
from storlab.study.factors import Factor
from storlab.study.messages import explain
from storlab.study.schema import DEFAULT_PROBES, NodeGroup, StudyFile, Trial
from storlab.study.substitution import Substitution, Word
from storlab.workloads.base import PLACE_WORDS, ReadInput, Workload
from storlab.workloads.registry import workload_types

TreePath = positions.Path
Report = Callable[[TreePath, str], None]

HOST = "host"


@dataclass(frozen=True)
class Load:
    """One workload of a cell and the node groups that it runs on."""

    name: str
    workload: Workload
    on: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One combination of levels. ``stacks`` by node group; ``origins`` says where each stack's layers were written."""

    number: int
    levels: Mapping[str, str]
    nodes: Mapping[str, NodeGroup]
    stacks: Mapping[str, tuple[Layer, ...]]
    loads: tuple[Load, ...]
    probes: Mapping[str, Probe]
    trial: Trial
    precondition: Workload | None = None
    origins: Mapping[str, tuple[TreePath, ...]] = field(default_factory=dict)

    @property
    def timeout(self) -> float:
        """Seconds that a trial of this cell may take."""
        matching = [
            rule.timeout
            for rule in self.trial.timeouts
            if all(self.levels.get(factor) == level for factor, level in rule.where.items())
        ]
        return matching[-1] if matching else self.trial.timeout


def expand(
    raw: Mapping[str, Any],
    study: StudyFile,
    factors: Sequence[Factor],
    read: ReadInput,
    report: Report,
    used: set[str],
) -> Iterator[Cell]:
    """Every cell that could be read, in the order of the factors; problems go to ``report`` with their place.

    ``used`` gathers the names of the factors and parameters that something refers to.
    """
    combinations = itertools.product(*(factor.levels for factor in factors))
    for number, levels in enumerate(combinations, start=1):
        words = {name: Word(value, ("parameters", name)) for name, value in study.parameters.items()}
        words |= {factor.name: Word(level.value, level.origin) for factor, level in zip(factors, levels, strict=True)}
        labels = {factor.name: level.label for factor, level in zip(factors, levels, strict=True)}
        reader = _CellReader(raw, study, read, Substitution(words, late=PLACE_WORDS), report)
        cell = reader.read(number, labels)
        used |= reader.substitution.used
        if cell is not None:
            yield cell


@dataclass
class _CellReader:
    """Reads one cell out of the study's raw tree; every problem is reported where it was written."""

    raw: Mapping[str, Any]
    study: StudyFile
    read_input: ReadInput
    substitution: Substitution
    report: Report
    _bad: bool = False

    def read(self, number: int, labels: Mapping[str, str]) -> Cell | None:
        trial_tree = self.substitute(("trial",), self.raw.get("trial", {}))
        trial = self.model(Trial, trial_tree, ("trial",))
        groups = self.groups()
        loads = self.loads(trial, groups)
        stacks, origins = self.stacks(groups, loads)
        probes = self.probes()
        precondition = None
        if isinstance(trial_tree, dict) and trial_tree.get("precondition") is not None:
            precondition = self.one_of(trial_tree["precondition"], ("trial", "precondition"))
        for path, name in self.substitution.unknown:
            known = [*self.substitution.words, *self.substitution.late]
            self.problem(path, f"there is no factor or parameter {{{name}}}{nearest(name, known)}", final=True)
        if self._bad or trial is None:
            return None
        return Cell(number, labels, groups, stacks, loads, probes, trial, precondition, origins)

    def substitute(self, path: TreePath, tree: Any) -> Any:
        return self.substitution.apply(tree, path)

    def problem(self, path: TreePath, message: str, final: bool = False) -> None:
        self._bad = True
        self.report(path if final else self.substitution.origin_of(path), message)

    def model(self, cls: type[BaseModel], tree: Any, path: TreePath) -> Any:
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            for where, message in explain(error, cls):
                self.problem((*path, *where), message)
            return None

    def groups(self) -> dict[str, NodeGroup]:
        tree = self.substitute(("nodes",), self.raw.get("nodes", {}))
        found = {name: self.model(NodeGroup, value, ("nodes", name)) for name, value in tree.items()}
        groups = {name: group for name, group in found.items() if group is not None}
        for name, group in groups.items():
            if group.kind != "local":
                self.problem(("nodes", name, "kind"), f"there is no kind of node {group.kind!r}; there is: local")
        return groups or {HOST: NodeGroup()}

    def loads(self, trial: Trial | None, groups: Mapping[str, NodeGroup]) -> tuple[Load, ...]:
        names = list(self.raw.get("workload", {}))
        chosen = names
        if trial is not None and trial.workloads is not None:
            chosen = []
            for index, name in enumerate(trial.workloads):
                if name in names:
                    chosen.append(name)
                else:
                    message = f"there is no workload {name!r}{nearest(name, names)}"
                    self.problem(("trial", "workloads", index), message)
            if not trial.workloads:
                self.problem(("trial", "workloads"), "a trial needs at least one workload")
        loads = (self.load(name, groups) for name in dict.fromkeys(chosen))
        return tuple(load for load in loads if load is not None)

    def load(self, name: str, groups: Mapping[str, NodeGroup]) -> Load | None:
        path: TreePath = ("workload", name)
        tree = self.substitute(path, self.raw["workload"][name])
        on = tree.pop("on", list(groups))
        targets = tuple([on] if isinstance(on, str) else on)
        for target in targets:
            if target not in groups:
                self.problem((*path, "on"), f"there are no nodes {target!r}{nearest(str(target), groups)}")
        workload = self.one_of(tree, path)
        return None if workload is None else Load(name, workload, targets)

    def one_of(self, tree: Any, path: TreePath) -> Workload | None:
        """A table with one key, the kind of workload: ``{ fio = {…} }``."""
        kinds = workload_types()
        if not isinstance(tree, dict) or len(tree) != 1:
            self.problem(path, f"it needs exactly one kind of workload, one of: {', '.join(kinds)}")
            return None
        ((kind, options),) = tree.items()
        if kind not in kinds:
            message = f"there is no kind of workload {kind!r}{nearest(kind, kinds)}; there are: {', '.join(kinds)}"
            self.problem((*path, kind), message)
            return None
        workload = self.model(kinds[kind], options, (*path, kind))
        try:
            return None if workload is None else workload.resolve(self.read_input)
        except ValueError as error:
            self.problem((*path, kind), str(error))
            return None

    def stacks(
        self, groups: Mapping[str, NodeGroup], loads: Sequence[Load]
    ) -> tuple[dict[str, tuple[Layer, ...]], dict[str, tuple[TreePath, ...]]]:
        stacks: dict[str, tuple[Layer, ...]] = {}
        origins: dict[str, tuple[TreePath, ...]] = {}
        for name, group in groups.items():
            own = group.stack is not None
            path: TreePath = ("nodes", name, "stack") if own else ("stack",)
            written = self.raw["nodes"][name]["stack"] if own else self.raw.get("stack")
            if written is None:
                self.problem(("stack",), 'there is no stack: write stack = "{factor}" or a list of layers')
                continue
            tree = self.substitute(path, [written] if isinstance(written, str | dict) else written)
            layers = self.layers(tree, path)
            if layers is None:
                continue
            accepted = [load.workload.accepts for load in loads if name in load.on]
            wanted = set(accepted[0]).intersection(*accepted[1:]) if accepted else {Dir, Disk}
            for position, message in type_errors(layers, sorted(wanted, key=lambda kind: kind.kind)):
                self.problem((*path, position), message)
            stacks[name] = layers
            origins[name] = tuple(self.substitution.origin_of((*path, index)) for index in range(len(layers)))
        return stacks, origins

    def layers(self, tree: Any, path: TreePath) -> tuple[Layer, ...] | None:
        if not isinstance(tree, list) or not tree:
            self.problem(path, "a stack is a list of one or more layers")
            return None
        layers = [self.layer(item, (*path, index)) for index, item in enumerate(tree)]
        return None if None in layers else tuple(layer for layer in layers if layer is not None)

    def layer(self, tree: Any, path: TreePath) -> Layer | None:
        kinds = layer_types()
        if any(path_of_word == self.substitution.origin_of(path) for path_of_word, _ in self.substitution.unknown):
            return None  # a {word} that does not exist, reported already
        if not isinstance(tree, dict) or "layer" not in tree:
            self.problem(path, f'{json.dumps(tree)} is no layer: write {{ layer = "…" }}, one of: {", ".join(kinds)}')
            return None
        kind = tree["layer"]
        if kind not in kinds:
            message = f"there is no layer {kind!r}{nearest(str(kind), kinds)}; there are: {', '.join(kinds)}"
            self.problem((*path, "layer"), message)
            return None
        layer: Layer | None = self.model(kinds[kind], tree, path)
        return layer

    def probes(self) -> dict[str, Probe]:
        kinds = probe_types()
        probes = {}
        tree = self.substitute(("probes",), self.raw.get("probes", DEFAULT_PROBES))
        for name, options in tree.items():
            if name not in kinds:
                message = f"there is no probe {name!r}{nearest(name, kinds)}; there are: {', '.join(kinds)}"
                self.problem(("probes", name), message)
            elif (probe := self.model(kinds[name], options, ("probes", name))) is not None:
                probes[name] = probe
        return probes


def nearest(word: str, known: Mapping[str, object] | Sequence[str]) -> str:
    """``; did you mean 'x'?`` where something close exists, else nothing."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def problem_at(path: TreePath, message: str, lines: Mapping[TreePath, int]) -> Problem:
    """A problem with its key as one writes it and its line."""
    key = ""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return Problem(key, message, positions.line_of(path, lines))
