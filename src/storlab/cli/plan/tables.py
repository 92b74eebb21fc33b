"""The tables of a plan: where each layer stands, what the nodes are, and what the levels of each factor change.

Cells that differ in nothing but a factor are written out as settings, ``mkfs.type`` or ``random-write.bs``, down to the
keys of layers and the options of mounts. Those are kept that are not the same in all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, BeforeValidator

from storlab.base.amounts import parse_duration, parse_size, size_text
from storlab.base.text import few, grouped, ranges
from storlab.report.document import Cell as Text
from storlab.report.document import Table
from storlab.study.cells import MAIN, Cell
from storlab.study.chains import Chain, Link
from storlab.study.schema import NodeGroup

if TYPE_CHECKING:
    from storlab.report.document import Tone
    from storlab.run.planning.plan import Plan

DEFAULT = "default"
"""Shown where a level leaves a key out that another one has."""
_ABSENT = "none of these"
_LISTS_OF_OPTIONS = {"options"}
"""Keys that hold a list, as mount(8) takes it: only what differs within it is shown."""
_BETWEEN_OPTIONS = re.compile(r"[,\s]+")
_NOT_HOW = {"layer", "once", "kind", "stack", "extra", "from", "workloads"}
"""Keys that say which and where, not how: stacks and loads have settings of their own for that."""


@dataclass(frozen=True)
class _Setting:
    """``set``: the study says so itself, and it is no default."""

    text: str
    set: bool = True


Settings = dict[str, _Setting]


@dataclass(frozen=True)
class LevelSettings:
    """What sets a level apart: ``mkfs.type`` → ``xfs``; empty if nothing does."""

    factor: str
    level: str
    settings: Mapping[str, str]


def differences(cells: Sequence[Cell]) -> list[LevelSettings]:
    """For each level of each factor with several; the other factors are at the levels that the first cell has."""
    found: list[LevelSettings] = []
    for factor in cells[0].levels if cells else {}:
        rest = {name: level for name, level in cells[0].levels.items() if name != factor}
        alike = {cell.levels[factor]: _settings(cell) for cell in cells if rest.items() <= cell.levels.items()}
        found += _of_factor(factor, alike) if len(alike) > 1 else ()
    return found


def _of_factor(factor: str, levels: Mapping[str, Settings]) -> Iterator[LevelSettings]:
    names = list(dict.fromkeys(name for settings in levels.values() for name in settings))
    differing = [n for n in names if len({each.text if (each := s.get(n)) else None for s in levels.values()}) > 1]
    common = {
        n: _common(s[n].text if n in s else "" for s in levels.values())
        for n in differing
        if n.rpartition(".")[2] in _LISTS_OF_OPTIONS
    }
    has = [{name.rpartition(".")[0] for name in settings} for settings in levels.values()]
    everywhere = set.intersection(*has) - {""}  # what is in each level: layers, loads and node groups
    for level, settings in levels.items():
        own = {}
        for name in differing:
            thing, setting = name.rpartition(".")[0], settings.get(name)
            if setting is None and (not thing or thing not in everywhere):
                continue  # it lacks the layer or load altogether, which its stack says
            if setting is not None and thing and thing not in everywhere and not setting.set:
                continue
            own[name] = _without(setting.text, common.get(name)) if setting is not None else DEFAULT
        explicit = {name: text for name, text in own.items() if text != DEFAULT}
        yield LevelSettings(factor, level, explicit or own)


def _without(text: str, common: set[str] | None) -> str:
    if common is None:
        return text
    return ",".join(option for option in _BETWEEN_OPTIONS.split(text) if option not in common) or _ABSENT


def _common(values: Iterable[str]) -> set[str]:
    return set.intersection(*(set(_BETWEEN_OPTIONS.split(value)) for value in values))


def _settings(cell: Cell) -> Settings:
    found: Settings = {}
    chains = [chain for chain in cell.chains if chain.links]
    count = Counter[str]()
    for chain in chains:
        place = f"{chain.group}{f', {chain.name}' if chain.name != MAIN else ''}: " if len(chains) > 1 else ""
        found[f"{place}stack"] = _Setting(" → ".join(link.layer.layer for link in chain.links))
        for link in chain.links:
            kind = link.layer.layer
            count[kind] += 1
            name = f"{kind}{f' {count[kind]}' if count[kind] > 1 else ''}"
            found |= {**_flat(name, link.layer), f"{name}.keep": _Setting(link.keep, link.keep != "trial")}
    found["load"] = _Setting(", ".join(load.name for load in cell.loads))
    for load in cell.loads:
        found |= _flat(load.name, load.workload)
    for name, group in cell.nodes.items():
        found[f"{name}.count"] = _Setting(str(group.count), group.count > 1)
        spec = _flat(name, group.spec())  # a copy, in which all keys are set
        found |= {key: _Setting(of.text, key.rpartition(".")[2] in group.model_fields_set) for key, of in spec.items()}
        found |= {f"{name}.{key}": _Setting(str(value)) for key, value in group.settings.items()}
        found |= _flat(f"{name} tcp", group.tcp) if group.tcp is not None else {}
    for name, probe in cell.probes.items():
        found |= _flat(f"probes.{name}", probe)  # a layer may have the same name: zfs
    found |= _flat("network", cell.network) if cell.network is not None else {}
    return found | _flat("trial", cell.trial)


def _flat(name: str, model: BaseModel) -> Settings:
    """Each key of a model with its value as text; those without a value are left out."""
    texts = _texts(model, model.model_dump(mode="json", exclude_none=True))
    return {
        f"{name}.{key}": _Setting(text, key in model.model_fields_set)
        for key, text in texts.items()
        if text and key not in _NOT_HOW
    }


def _texts(model: BaseModel, dumped: Mapping[str, Any]) -> dict[str, str]:
    """Each of its keys that are in ``dumped``; of a model within it those that are not at their defaults."""
    found = {}
    for key, value in dumped.items():
        within, field = getattr(model, key, None), type(model).model_fields.get(key)
        if isinstance(within, BaseModel):
            texts = _texts(within, within.model_dump(mode="json", exclude_defaults=True))
            found[key] = ", ".join(f"{name} {text}" for name, text in texts.items())
        else:
            found[key] = _text(value, () if field is None else (field.annotation, *field.metadata))
    return found


def _text(value: Any, kinds: Sequence[Any] = ()) -> str:
    """As a study has it: ``16k`` of a size, ``0.5s`` of a duration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and _is_parsed_by(parse_size, kinds):
        return size_text(value)
    if isinstance(value, int | float) and _is_parsed_by(parse_duration, kinds):
        return f"{value:g}s"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(each)}" for key, each in value.items() if each not in (None, [], {}))
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return str(value)


def _is_parsed_by(parse: Callable[..., Any], kinds: Iterable[Any]) -> bool:
    """Whether a field's type, or a part of it, says that it is read so."""
    return any(
        (isinstance(kind, BeforeValidator) and kind.func is parse) or _is_parsed_by(parse, get_args(kind))
        for kind in kinds
    )


_FIRST, _LAST = 24, 3  # rows of a table of more
_MOST_MACHINES = 6
_MOST_LEVELS, _MOST_SETTINGS = 12, 6
_LONGEST = 48  # characters of one value
CROSSES = " ⇢ "
"""Between the nodes of a chain."""


def cells_text(numbers: Sequence[int], of: int) -> str:
    """``1–3, 7``; ``all`` where these are as many as there are."""
    return "all" if len(numbers) == of else ranges(numbers)


def chain_text(cell: Cell, chain: Chain) -> str:
    """A chain from the lowest layer on, with the nodes that each part stands on where they differ."""
    above = _layers(chain.above)
    if chain.crossing is None:
        return above
    below = _layers(chain.below) or "what it gives"
    return f"{chain.source}: {below}{CROSSES}{chain.group}: {above}"


def stack_text(cell: Cell, group: str) -> str:
    """A group's own stack; empty where it has none."""
    chain = cell.chain(group)
    return chain_text(cell, chain) if chain is not None and chain.links else ""


def _layers(links: Iterable[Link]) -> str:
    return " → ".join(link.layer.label() for link in links)


def needs_list(cells: Sequence[Cell]) -> bool:
    """Whether stacks are too much for a column beside the cells: several nodes have one, or it crosses nodes."""
    return any(chain.crossing is not None for cell in cells for chain in cell.chains) or any(
        sum(bool(chain.links) for chain in cell.chains) > 1 for cell in cells
    )


def stack_rows(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Cells, nodes and stack, each stack once. Nodes with a load come before those that serve them."""
    found: dict[tuple[str, str], list[int]] = {}
    for group in groups_in_order(cells):
        for cell in cells:
            for chain in cell.chains:
                if chain.group == group and chain.links:
                    count = cell.nodes[group].count
                    nodes = f"{group} ×{count}" if count > 1 else group
                    if chain.name:
                        nodes += f", {chain.name}{f' ×{chain.count}' if chain.count > 1 else ''}"
                    found.setdefault((nodes, chain_text(cell, chain)), []).append(cell.number)
    return [(cells_text(numbers, len(cells)), nodes, text) for (nodes, text), numbers in found.items()]


def stacks_table(cells: Sequence[Cell]) -> Table:
    rows = stack_rows(cells)
    if (more := len(rows) - _FIRST - _LAST) > 1:
        rows[_FIRST:-_LAST] = [("…", "", f"{more:,} more")]
    crosses = any(CROSSES in stack for _, _, stack in rows)
    title = f"stack{', with the nodes that each part stands on' if crosses else ''}"
    return Table("", ("cells", "nodes", title), tuple(rows), labels=3)


def cells_table(made: Plan, *, with_stacks: bool) -> Table:
    cells = made.study.cells
    columns = ("cell", *(factor.name for factor in made.study.factors), *(["stack"] if with_stacks else []), "load")
    rows = []
    for cell in cells:
        stack = [next(filter(None, (stack_text(cell, name) for name in cell.nodes)), "")] if with_stacks else []
        loads = ", ".join(load.name for load in cell.loads)
        tone: Tone = "soft" if cell.number in made.unsupported else ""
        texts = (str(cell.number), *cell.levels.values(), *stack, loads)
        rows.append(tuple(Text(text, tone=tone) for text in texts))
    if (more := len(rows) - _FIRST - _LAST) > 1:
        rows[_FIRST:-_LAST] = [(Text("…"), Text(f"{more:,} more"), *[Text("")] * (len(columns) - 2))]
    return Table("", columns, tuple(rows), labels=len(columns))


def groups_in_order(cells: Sequence[Cell]) -> list[str]:
    """Every group of nodes; those that only serve others come last."""
    names = dict.fromkeys(name for cell in cells for name in cell.nodes)
    return sorted(names, key=lambda name: not any(cell.working(name) for cell in cells if name in cell.nodes))


def node_lines(made: Plan) -> list[str]:
    """What the nodes are that are not just this machine, and what they run with."""
    names = groups_in_order(made.study.cells)
    nodes = ((name, cell.nodes[name]) for name in names for cell in made.study.cells if name in cell.nodes)
    described = ((name, group.count, said) for name, group in nodes if (said := group.describe()))
    groups = grouped((name, f"{count} × {said}" if count > 1 else said) for name, count, said in described)
    lines = [f"{name}: {_or(list(dict.fromkeys(machines)))}" for name, machines in groups.items()]
    return [*lines, *dict.fromkeys(line for name in groups for line in made.prepared[name].lines())]


def _or(machines: Sequence[str]) -> str:
    left_out = len(machines) - _MOST_MACHINES
    return " or ".join(machines) if left_out <= 0 else f"{' or '.join(machines[:_MOST_MACHINES])}, or {left_out:,} more"


def memory_text(made: Plan) -> str:
    """``4.6G of 21.9G available, QEMU's own included``; empty if nothing needs any."""
    if not made.memory.needed:
        return ""
    free = made.memory.free
    rest = f" of {_gibibytes(free)} available" if free is not None else ""
    return f"{_gibibytes(made.memory.needed)}{rest}, QEMU's own included"


def _gibibytes(size: int) -> str:
    return f"{size / 1024**3:.1f}G"


def nodes_as_data(made: Plan) -> dict[str, dict[str, Any]]:
    """By node group, for programs: what its nodes run with, and what they are in each cell."""

    def machine(group: NodeGroup) -> dict[str, Any]:
        return {"count": group.count, **group.spec().model_dump(mode="json", exclude_none=True)}

    groups = {name: facts for name, prepared in made.prepared.items() if (facts := prepared.facts())}
    cells = {name: [cell for cell in made.study.cells if name in cell.nodes] for name in groups}
    machines = {name: {str(cell.number): machine(cell.nodes[name]) for cell in those} for name, those in cells.items()}
    return {name: {**facts, "machines": machines[name]} for name, facts in groups.items()}


def levels_table(cells: Sequence[Cell]) -> tuple[Table, ...]:
    """A row a level, or a factor if its levels are simply the values of a setting; none without factors."""
    rows = tuple(row for levels in _by_factor(cells) for row in _rows(levels))
    return (Table("", ("factor", "level", "what it changes"), rows, labels=3),) if rows else ()


def levels_as_data(cells: Sequence[Cell]) -> dict[str, dict[str, dict[str, str]]]:
    """Factor → level → settings."""
    return {levels[0].factor: {each.level: dict(each.settings) for each in levels} for levels in _by_factor(cells)}


def _by_factor(cells: Sequence[Cell]) -> list[list[LevelSettings]]:
    return list(grouped((each.factor, each) for each in differences(cells)).values())


def _rows(levels: Sequence[LevelSettings]) -> list[tuple[str, str, str]]:
    factor = levels[0].factor
    if all(each.settings and set(each.settings.values()) == {each.level} for each in levels):
        names = [each.level for each in levels]
        return [(factor, few(names, _MOST_LEVELS), ", ".join(levels[0].settings))]
    if not any(each.settings for each in levels):
        return [(factor, few([each.level for each in levels], _MOST_LEVELS), "nothing")]
    rows = [
        (factor if not at else "", each.level, _settings_text(each)) for at, each in enumerate(levels[:_MOST_LEVELS])
    ]
    more = len(levels) - _MOST_LEVELS
    return [*rows, ("", f"and {more} more", "--json has all")] if more > 0 else rows


def _settings_text(level: LevelSettings) -> str:
    named = [f"{name} {_short(value)}" for name, value in list(level.settings.items())[:_MOST_SETTINGS]]
    more = len(level.settings) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])]) or "nothing"


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST or " → " in value else f"{value[: _LONGEST - 1]}…"
