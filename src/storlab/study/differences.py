"""What the levels of a factor change, down to the keys of layers and the options of mounts.

Cells that differ in nothing but that factor are written out as settings, ``mkfs.type`` or ``random-write.bs``, of which
those are kept that are not the same in all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator

from storlab.amounts import parse_duration, parse_size, size_text
from storlab.study.cells import MAIN, Cell

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
