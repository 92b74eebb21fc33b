"""Reading cells out of a study's tree: levels put in, everything read by its model and checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from storlab.probes.base import Probe
from storlab.probes.registry import probe_types
from storlab.study.cells import HOST, Cell, Load
from storlab.study.factors import Factor
from storlab.study.messages import explain, nearest
from storlab.study.positions import Path
from storlab.study.read_stacks import StackReader
from storlab.study.schema import DEFAULT_PROBES, NodeGroup, StudyFile, Trial
from storlab.study.substitution import Substitution, Word
from storlab.units import shown
from storlab.workloads.base import PLACE_WORDS, ReadInput, Workload
from storlab.workloads.registry import workload_types

Report = Callable[[Path, str], None]

_LATE_PHASES = ("prepare", "precondition", "verify")


@dataclass(frozen=True)
class Source:
    """What cells are read from. ``levels``: every level of every factor, also those that --only leaves out."""

    raw: Mapping[str, Any]
    study: StudyFile
    levels: Mapping[str, Sequence[str]]
    read: ReadInput
    report: Report


def expand(source: Source, factors: Sequence[Factor], used: set[str]) -> Iterator[Cell]:
    """Every cell that could be read, in the order of the factors; problems are reported with their place.

    ``used`` gathers the names of the factors and parameters that something refers to.
    """
    combinations = itertools.product(*(factor.levels for factor in factors))
    for number, levels in enumerate(combinations, start=1):
        words = {name: Word(value, ("parameters", name)) for name, value in source.study.parameters.items()}
        words |= {factor.name: Word(level.value, level.origin) for factor, level in zip(factors, levels, strict=True)}
        labels = {factor.name: level.label for factor, level in zip(factors, levels, strict=True)}
        reader = _CellReader(source, Substitution(words, PLACE_WORDS))
        cell = reader.read(number, labels)
        used |= reader.substitution.used
        if cell is not None:
            yield cell


@dataclass
class _CellReader:
    """Reads one cell; every problem is reported where it was written."""

    source: Source
    substitution: Substitution
    _bad: bool = False

    def read(self, number: int, labels: Mapping[str, str]) -> Cell | None:
        trial, precondition = self.trial()
        groups = self.groups()
        loads = self.loads(trial, groups)
        accepted = {name: [load.workload.takes() for load in loads if name in load.on] for name in groups}
        if precondition is not None:
            accepted = {name: [*kinds, precondition.takes()] for name, kinds in accepted.items()}
        stacks = StackReader(self, self.source.raw, groups).read(accepted, loads)
        probes = self.probes()
        if trial is not None:
            self.no_guests_kept(trial, groups)
        for path, message in self.substitution.problems:
            self._bad = True
            self.source.report(path, message)
        if self._bad or trial is None:
            return None
        return Cell(
            number, labels, groups, stacks.layers, loads, probes, trial, precondition, stacks.origins, stacks.disks
        )

    def problem(self, path: Path, message: str) -> None:
        """Report it, unless it only follows from a word that can't be put in, which is reported in any case."""
        self._bad = True
        origin = self.substitution.origin_of(path)
        for cause, _ in self.substitution.problems:
            if cause[: len(origin)] == origin or origin[: len(cause)] == cause:
                return
        self.source.report(origin, message)

    def model(self, cls: type[BaseModel], tree: Any, path: Path) -> Any:
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            for where, message in explain(error, cls):
                self.problem((*path, *where), message)
            return None

    def trial(self) -> tuple[Trial | None, Workload | None]:
        tree = {
            key: self.substitution.apply(value, ("trial", key), late=key in _LATE_PHASES)
            for key, value in self.source.raw.get("trial", {}).items()
        }
        trial: Trial | None = self.model(Trial, tree, ("trial",))
        if trial is None:
            return None, None
        for index, rule in enumerate(trial.timeouts):
            for factor, level in rule.where.items():
                self.known_level(("trial", "timeouts", index, "where", factor), factor, level)
        if trial.precondition is None:
            return trial, None
        return trial, self.one_of(trial.precondition, ("trial", "precondition"))

    def known_level(self, path: Path, factor: str, level: str) -> None:
        levels = self.source.levels
        if factor not in levels:
            self.problem(path, f"there is no factor {factor!r}{nearest(factor, levels)}")
        elif level not in levels[factor]:
            has = nearest(level, levels[factor]) or f"; it has {', '.join(levels[factor])}"
            self.problem(path, f"{factor} has no level {level!r}{has}")

    def groups(self) -> dict[str, NodeGroup]:
        groups = {}
        for name, tree in self.source.raw.get("nodes", {}).items():
            path: Path = ("nodes", name)
            group = self.model(NodeGroup, self.substitution.apply(tree, path), path)
            groups[name] = group if group is not None else NodeGroup()  # what else is wrong is still found
            if group is None:
                continue
            if name == HOST and group.kind != "local":
                self.problem((*path, "kind"), "host means this machine: call virtual machines something else")
            elif name == HOST and group.count != 1:
                self.problem((*path, "count"), "host means this machine, once: call a group of several something else")
        return groups or {HOST: NodeGroup()}

    def no_guests_kept(self, trial: Trial, groups: Mapping[str, NodeGroup]) -> None:
        """Each trial has virtual machines of its own, and with them goes what was put up in them."""
        if trial.keep_stacks and any(group.kind != "local" for group in groups.values()):
            self.problem(
                ("trial", "keep_stacks"), "stacks of virtual machines can't be kept: each trial starts them anew"
            )

    def loads(self, trial: Trial | None, groups: Mapping[str, NodeGroup]) -> tuple[Load, ...]:
        names = list(self.source.raw["workload"])
        chosen = names
        if trial is not None and trial.workloads is not None:
            chosen = []
            for index, name in enumerate(trial.workloads):
                path: Path = ("trial", "workloads", index)
                if name not in names:
                    has = nearest(name, names) or f"; there are: {', '.join(names)}"
                    self.problem(path, f"there is no workload {name!r}{has}")
                elif name in chosen:
                    self.problem(path, f"the workload {name!r} is there twice: for more of the same load, see numjobs")
                else:
                    chosen.append(name)
            if not trial.workloads:
                self.problem(("trial", "workloads"), "a trial needs at least one workload")
        loads = (self.load(name, groups) for name in chosen)
        return tuple(load for load in loads if load is not None)

    def load(self, name: str, groups: Mapping[str, NodeGroup]) -> Load | None:
        path: Path = ("workload", name)
        tree = self.substitution.apply(self.source.raw["workload"][name], path, late=True)
        servers = {group.disk_on for group in groups.values()}
        on = tree.pop("on", [group for group in groups if group not in servers] or list(groups))
        targets = [on] if isinstance(on, str) else on
        if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
            self.problem((*path, "on"), f"{shown(on)} should be the name of nodes, or a list of such names")
            targets = list(groups)
        for target in targets:
            if target not in groups:
                has = nearest(target, groups) or f"; there are: {', '.join(groups)}"
                self.problem((*path, "on"), f"there are no nodes {target!r}{has}")
        workload = self.one_of(tree, path)
        return None if workload is None else Load(name, workload, tuple(dict.fromkeys(targets)))

    def one_of(self, tree: Any, path: Path) -> Workload | None:
        """A table with one key, the kind of workload: ``{ fio = {…} }``."""
        kinds = workload_types()
        wanted = f"one of: {', '.join(f'{kind} = {{ … }}' for kind in kinds)}"
        unknown = [key for key in tree if key not in kinds]
        if len(tree) > 1 and unknown:
            # Options that were written without their kind are one mistake, not one each.
            self.problem((*path, unknown[0]), f"this is no kind of workload; a workload is {wanted}")
            return None
        if len(tree) != 1:
            self.problem(path, f"a workload is {wanted}; here are {', '.join(tree) or 'none'}")
            return None
        ((kind, options),) = tree.items()
        if unknown:
            hint = nearest(kind, kinds) or f"; it is {wanted}"
            self.problem((*path, kind), f"there is no kind of workload {kind!r}{hint}")
            return None
        workload: Workload | None = self.model(kinds[kind], options, (*path, kind))
        try:
            return None if workload is None else workload.resolve(self.source.read)
        except ValueError as error:
            self.problem((*path, kind, *getattr(error, "path", ())), str(error))
            return None

    def probes(self) -> dict[str, Probe]:
        kinds = probe_types()
        probes = {}
        for name, tree in self.source.raw.get("probes", DEFAULT_PROBES).items():
            path: Path = ("probes", name)
            if name not in kinds:
                has = nearest(name, kinds) or f"; there are: {', '.join(kinds)}"
                self.problem(path, f"there is no probe {name!r}{has}")
            elif (probe := self.model(kinds[name], self.substitution.apply(tree, path), path)) is not None:
                probes[name] = probe
        return probes
