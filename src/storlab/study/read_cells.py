"""Reading cells out of a study's tree: levels put in, everything read by its model and checked."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from storlab.base.limits import NODES
from storlab.base.reach import FOLDER
from storlab.base.units import parse_size, shown
from storlab.layers.resources import Resource
from storlab.nodes.shaping.keys import Network
from storlab.probes.base import Probe
from storlab.registry import node_kinds, probe_types, workload_types
from storlab.study.cells import HOST, Cell, CrashCheck, Load, Target
from storlab.study.factors import Factor, Level
from storlab.study.machines import read_machines
from storlab.study.messages import explain, nearest, no_level, unknown
from storlab.study.read_stacks import StackReader
from storlab.study.schema import (
    DEFAULT_PROBES,
    NodeGroup,
    PowerCuts,
    StudyFile,
    Trial,
    default_groups,
    group_model,
)
from storlab.study.substitution import Substitution, Word
from storlab.study.toml_text import Path
from storlab.workloads.base import PLACE_WORDS, ReadInput, Witness, Workload, words_in
from storlab.workloads.limits import Limits

Report = Callable[[Path, str], None]

_VERIFY, _CRASH = "verify", "crash"
_LATE_PHASES = ("prepare", "precondition", _VERIFY)


@dataclass(frozen=True)
class Source:
    """What cells are read from. ``levels``: every level of every factor, also those that --only leaves out.

    ``folder``: that of the study, whose files it names by relative paths.
    """

    raw: Mapping[str, Any]
    study: StudyFile
    levels: Mapping[str, Sequence[str]]
    read: ReadInput
    report: Report
    folder: pathlib.Path


def expand(source: Source, factors: Sequence[Factor], used: set[str]) -> Iterator[Cell]:
    """Every cell that could be read, in the order of the factors; problems are reported with their place.

    ``used`` gathers the names of the factors and parameters that something refers to.
    """
    rules = source.study.exclude
    combinations = (
        levels
        for levels in itertools.product(*(factor.levels for factor in factors))
        if not any(_matches(rule, factors, levels) for rule in rules)
    )
    for number, levels in enumerate(combinations, start=1):
        words = {name: Word(value, ("parameters", name)) for name, value in source.study.parameters.items()}
        words |= {factor.name: Word(level.value, level.origin) for factor, level in zip(factors, levels, strict=True)}
        labels = {factor.name: level.label for factor, level in zip(factors, levels, strict=True)}
        reader = CellReader(source, Substitution(words, PLACE_WORDS))
        cell = reader.read(number, labels)
        used |= reader.substitution.used
        if cell is not None:
            yield cell


def _matches(rule: Mapping[str, Sequence[str]], factors: Sequence[Factor], levels: Sequence[Level]) -> bool:
    labels = {factor.name: level.label for factor, level in zip(factors, levels, strict=True)}
    return all(labels.get(factor) in several for factor, several in rule.items())


def _words_of(trial: Trial | None) -> dict[Path, set[str]]:
    """The words in braces of a trial's own commands, by the place where they are written."""
    if trial is None:
        return {}
    phases = {"prepare": trial.prepare, "verify": trial.verify}
    return {
        ("trial", phase, command, at): words_in(word)
        for phase, commands in phases.items()
        for command, argv in enumerate(commands)
        for at, word in enumerate(argv)
    }


@dataclass
class CellReader:
    """Reads one cell; every problem is reported where it was written."""

    source: Source
    substitution: Substitution
    _bad: bool = False

    def read(self, number: int, labels: Mapping[str, str]) -> Cell | None:
        trial, precondition, check = self.trial()
        groups = self.groups()
        loads = self.loads(trial, groups)
        verified = None if check is None else self.verified(check, loads)
        accepted: dict[tuple[str, str], list[tuple[type[Resource], ...]]] = {}
        for load in loads:
            for target in load.on:
                accepted.setdefault((target.group, target.chain), []).append(load.workload.takes())
        if precondition is not None:
            accepted = {target: [*kinds, precondition.takes()] for target, kinds in accepted.items()}
        if verified is not None:
            accepted = {target: [*kinds, verified.workload.takes()] for target, kinds in accepted.items()}
        declared = StackReader(self, self.source.raw, groups, _words_of(trial), self.source.read).read(accepted, loads)
        probes, network, crash = self.probes(), self.network(), self.crash(groups, loads)
        for path, message in self.substitution.problems:
            self._bad = True
            self.source.report(path, message)
        if self._bad or trial is None:
            return None
        return Cell(number, labels, groups, declared, loads, probes, trial, precondition, network, verified, crash)

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
            return cls.model_validate(tree, context={FOLDER: self.source.folder})
        except ValidationError as error:
            for where, message in explain(error, cls):
                self.problem((*path, *where), message)
            return None

    def trial(self) -> tuple[Trial | None, Workload | None, Workload | None]:
        """Its phases, with the workloads of two of them: the precondition, and what looks at the directory after it."""
        tree = {
            key: self.substitution.apply(value, ("trial", key), late=key in _LATE_PHASES)
            for key, value in self.source.raw.get("trial", {}).items()
        }
        last = tree.get(_VERIFY)  # a workload, by its name alone or with its keys; or commands
        is_check = isinstance(last, dict) or (isinstance(last, str) and last in workload_types())
        check = tree.pop(_VERIFY) if is_check else None
        trial: Trial | None = self.model(Trial, tree, ("trial",))
        if trial is None:
            return None, None, None
        for index, rule in enumerate(trial.timeouts):
            for factor, level in rule.where.items():
                path, levels = ("trial", "timeouts", index, "where", factor), self.source.levels
                if factor not in levels:
                    self.problem(path, unknown(f"factor {factor!r}", factor, levels))
                elif level not in levels[factor]:
                    self.problem(path, no_level(factor, level, levels[factor]))
        first, last = trial.precondition, {check: {}} if isinstance(check, str) else check
        precondition = None if first is None else self.one_of(first, ("trial", "precondition"))
        return trial, precondition, None if last is None else self.one_of(last, ("trial", _VERIFY))

    def verified(self, check: Workload, loads: Sequence[Load]) -> Load | None:
        """The load that a check is: on all that the loads of the cell run on."""
        path: Path = ("trial", _VERIFY)
        if not check.verifies():
            able = [kind for kind, cls in workload_types().items() if cls.verifies is not Workload.verifies]
            message = f"{check.kind} is a load, which finds nothing wrong: write commands, or {' or '.join(able)}"
            self.problem(path, message)
            return None
        if any(load.name == _VERIFY for load in loads):
            self.problem(("workload", _VERIFY), f"the check of [trial] {_VERIFY} has this name: give the load another")
            return None
        targets = dict.fromkeys(target for load in loads for target in load.on)
        groups = [target.group for target in targets]
        twice = next((group for group in groups if groups.count(group) > 1), None)
        if twice is not None:
            remedy = f"write a workload {check.kind} for each of them"
            self.problem(path, f"the loads work in several directories of the nodes {twice}: {remedy}")
        same = bool(loads) and all(load.same_files for load in loads)
        return Load(_VERIFY, check, tuple(targets), same, verifies=True)

    def crash(self, groups: Mapping[str, NodeGroup], loads: Sequence[Load]) -> CrashCheck | None:
        path: Path = ("crash",)
        tree = self.source.raw.get("crash")
        if tree is None:
            return None
        asked: PowerCuts | None = self.model(PowerCuts, self.substitution.apply(tree, path, late=True), path)
        if asked is None or not loads:
            return None
        if asked.load is None:
            if not any(isinstance(load.workload, Witness) for load in loads):
                message = "no load of this study can tell what a power cut took: write load = { ledger = {} }, or "
                self.problem(path, f"{message}sql-ledger for a database")
            return CrashCheck(asked.moments, parse_size(asked.unit), None)
        workload = self.one_of(asked.load, (*path, "load"))
        if workload is None:
            return None
        if not isinstance(workload, Witness):
            message = f"{workload.kind} can't tell what a power cut took: write ledger, or sql-ledger for a database"
            self.problem((*path, "load"), message)
        on = loads[0].on if asked.on is None else (self.target(asked.on, groups, (*path, "on")),)
        return CrashCheck(asked.moments, parse_size(asked.unit), Load(_CRASH, workload, on))

    def network(self) -> Network | None:
        tree = self.source.raw.get("network")
        if tree is None:
            return None
        network: Network | None = self.model(Network, self.substitution.apply(tree, ("network",)), ("network",))
        return network

    def groups(self) -> dict[str, NodeGroup]:
        groups = {}
        for name, tree in self.source.raw.get("nodes", {}).items():
            path: Path = ("nodes", name)
            group = self.group(self.substitution.apply(tree, path), path)
            groups[name] = group if group is not None else default_groups()[HOST]  # what else is wrong is still found
            if group is None:
                continue
            if name == HOST and group.kind != "local":
                self.problem((*path, "kind"), "host means this machine: call other nodes something else")
            elif name == HOST and group.count != 1:
                self.problem((*path, "count"), "host means this machine, once: call a group of several something else")
        if (count := sum(group.count for group in groups.values())) > NODES:
            self.problem(("nodes",), f"these are {count} nodes, more than {NODES}: make their counts smaller")
        return groups or default_groups()

    def group(self, tree: Any, path: Path) -> NodeGroup | None:
        kinds = node_kinds()
        kind = tree.get("kind", "local")
        if not isinstance(kind, str) or kind not in kinds:
            self.problem((*path, "kind"), unknown(f"kind of node {shown(kind)}", kind, kinds))
            return None
        model = group_model(kind)
        for key in tree:
            others = [other for other in kinds if other != kind and key in keys_of(group_model(other))]
            if key not in keys_of(model) and others:
                remedy = f'{key} is for nodes of kind "{others[0]}": write kind = "{others[0]}", or leave it out'
                self.problem((*path, key), remedy)
                return None
        if "hosts" in tree and (tree := self.with_hosts(tree, path)) is None:
            return None
        found: NodeGroup | None = self.model(model, tree, path)
        if found is None and "tcp" in tree:  # reported; what stands on these nodes is checked all the same
            with suppress(ValidationError):
                rest = {key: value for key, value in tree.items() if key != "tcp"}
                return model.model_validate(rest, context={FOLDER: self.source.folder})
        return found

    def with_hosts(self, tree: dict[str, Any], path: Path) -> dict[str, Any] | None:
        """With the hosts that groups of the lab stand for (``@GROUP``); ``None``: that failed, and was reported."""
        written = tree["hosts"]
        words = [written] if isinstance(written, str) else written
        if not isinstance(words, list) or not any(str(word).startswith("@") for word in words):
            return tree
        try:
            machines = read_machines(self.source.read)
            named = [machines.destinations(word) if str(word).startswith("@") else [word] for word in words]
            hosts = list(dict.fromkeys(host for each in named for host in each))
            return {**machines.keys_of(hosts), **tree, "hosts": hosts}
        except ValueError as error:
            self.problem((*path, "hosts"), str(error))
            return None

    def loads(self, trial: Trial | None, groups: Mapping[str, NodeGroup]) -> tuple[Load, ...]:
        names = list(self.source.raw["workload"])
        chosen = names
        if trial is not None and trial.workloads is not None:
            chosen = []
            for index, name in enumerate(trial.workloads):
                path: Path = ("trial", "workloads", index)
                if name not in names:
                    self.problem(path, unknown(f"workload {name!r}", name, names))
                elif name in chosen:
                    self.problem(path, f"the workload {name!r} is listed twice: for more of the same load, see numjobs")
                else:
                    chosen.append(name)
            if not trial.workloads:
                self.problem(("trial", "workloads"), "a trial needs at least one workload")
        loads = (self.load(name, groups) for name in chosen)
        return tuple(load for load in loads if load is not None)

    def load(self, name: str, groups: Mapping[str, NodeGroup]) -> Load | None:
        path: Path = ("workload", name)
        tree = self.substitution.apply(self.source.raw["workload"][name], path, late=True)
        same = tree.pop("shared_files", "own")
        if same not in ("own", "same"):
            self.problem((*path, "shared_files"), f'{shown(same)} is neither "own" nor "same"')
        servers = {source for group in groups.values() for source in group.sources} - {HOST}
        on = tree.pop("on", [group for group in groups if group not in servers] or list(groups))
        named = [on] if isinstance(on, str) else on
        if not isinstance(named, list) or not named or not all(isinstance(target, str) for target in named):
            self.problem((*path, "on"), f"{shown(on)} should be the name of nodes, or a list of such names")
            named = list(groups)
        targets = [self.target(name, groups, (*path, "on")) for name in dict.fromkeys(named)]
        twice = [target.group for target in targets if [each.group for each in targets].count(target.group) > 1]
        if twice:
            self.problem((*path, "on"), f"the load runs twice on the nodes {twice[0]}: write a workload for each chain")
        asked = tree.pop("limits", None)
        limits: Limits | None = None if asked is None else self.model(Limits, asked, (*path, "limits"))
        workload = self.one_of(tree, path)
        if workload is None:
            return None
        limits = limits if limits is not None and limits.model_dump(exclude_none=True) else None  # {} is a level, too
        return Load(name, workload, tuple(targets), same == "same", limits=limits)

    def target(self, text: str, groups: Mapping[str, NodeGroup], path: Path) -> Target:
        """``vm``, or ``vm:share``: a further chain of these nodes."""
        group, _, chain = text.partition(":")
        if group not in groups:
            self.problem(path, unknown(f"nodes {group!r}", group, groups))
        elif chain and chain not in groups[group].extra:
            named = groups[group].extra
            has = nearest(chain, named) or f"; there are: {', '.join(named) or 'none'}"
            self.problem(path, f"the nodes {group} have no chain {chain!r}{has}")
        elif chain and groups[group].extra[chain].count > 1:
            self.problem(path, f"each of the nodes {group} has several chains {chain!r}, and a load runs on one")
        return Target(group, chain)

    def one_of(self, tree: Any, path: Path) -> Workload | None:
        """A table with one key, the kind of workload: ``{ fio = {…} }``."""
        kinds = workload_types()
        wanted = f"one of: {', '.join(f'{kind} = {{ … }}' for kind in kinds)}"
        unknown = [key for key in tree if key not in kinds]
        if len(tree) > 1 and unknown:
            # Options that were written without their kind are one mistake, not one each.
            self.problem((*path, unknown[0]), f"this is not a kind of workload; a workload is {wanted}")
            return None
        if len(tree) != 1:
            self.problem(path, f"a workload is {wanted}; here are {', '.join(tree) or 'none'}")
            return None
        ((kind, options),) = tree.items()
        if unknown:
            hint = nearest(kind, kinds) or f"; it is {wanted}"
            self.problem((*path, kind), f"unknown kind of workload {kind!r}{hint}")
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
                self.problem(path, unknown(f"probe {name!r}", name, kinds))
            elif (probe := self.model(kinds[name], self.substitution.apply(tree, path), path)) is not None:
                probes[name] = probe
        return probes


def keys_of(model: type[BaseModel]) -> set[str]:
    return {info.alias or name for name, info in model.model_fields.items()}
