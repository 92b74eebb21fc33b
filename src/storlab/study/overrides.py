"""What the command line changes in a study: ``--set PATH=VALUE`` and ``--only FACTOR=LEVEL[,LEVEL]``.

``--set`` may change the kind of nodes, so that one study runs here, in guests, and on other machines. What only nodes
of their former kind have is left out: memory, say, and what a hypervisor would attach.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from storlab.base.errors import UserError
from storlab.registry import node_kinds
from storlab.study.factors import Factor
from storlab.study.messages import nearest
from storlab.study.read_cells import keys_of
from storlab.study.schema import StudyFile, group_model
from storlab.study.toml_text import Path, key_path

_TOP = [info.alias or name for name, info in StudyFile.model_fields.items()]


def apply_override(raw: dict[str, Any], override: str) -> Path:
    """Change the tree in place; returns where. Raises ``UserError``.

    A path is written as in TOML, with numbers from 0 for the elements of lists. A single name that is a parameter
    means that parameter; but ``disk=/dev/…`` the study's disk, where the parameter is a size. VALUE is TOML, or text.
    """
    written, separator, value = override.partition("=")
    path = key_path(written)
    if not separator or not path:
        raise UserError(f"--set {override}: write PATH=VALUE, such as --set repeat.max=10")
    parameters = raw.get("parameters")
    known = list(parameters) if isinstance(parameters, dict) else []
    # The study's disk may be set, and no parameter ``disk``, which is a size in many studies.
    own = parameters.get("disk") if isinstance(parameters, dict) else None
    disk = path == ("disk",) and _is_path(_toml_value(value)) and not _is_path(own)
    if len(path) == 1 and path[0] in known and not disk:
        path = ("parameters", path[0])
    elif path[0] not in _TOP:
        what = "parameter" if len(path) == 1 else "key"
        raise UserError(f"--set {override}: the study has no {what} {path[0]!r}{nearest(path[0], [*known, *_TOP])}")
    real: list[str | int] = []
    here: Any = raw
    for part in path[:-1]:
        key: Any = _key(here, part, override, real)
        here = here[key] if isinstance(here, list) else here.setdefault(key, {})
        real.append(key)
    last: Any = _key(here, path[-1], override, real)
    here[last] = _value(path, value)
    return (*real, last)


def texts_set(overrides: Iterable[str]) -> Iterator[str]:
    """The texts among the values that ``--set`` gave, in lists and tables, too."""
    waiting = [_value(key_path(written), value) for written, _, value in (each.partition("=") for each in overrides)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | dict):
            waiting += value.values() if isinstance(value, dict) else value


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("/", "@"))


def apply_profile(raw: dict[str, Any], changed: Collection[Path]) -> None:
    """Put the chosen profile's values into the parameters, but for those that --set changed. In place.

    What is no table is left for the schema to refuse.
    """
    profiles, parameters = raw.get("profiles"), raw.get("parameters")
    name = raw.get("profile")
    values = profiles.get(name) if isinstance(profiles, dict) and isinstance(name, str) else None
    if isinstance(values, dict) and isinstance(parameters, dict):
        parameters |= {key: value for key, value in values.items() if ("parameters", key) not in changed}


def _value(path: Path, written: str) -> Any:
    """What ``written`` means at a path: machines are a list also as ``lab1,lab2``."""
    value = _toml_value(written)
    hosts = isinstance(value, str) and len(path) == 3 and path[0] == "nodes" and path[2] == "hosts"
    return value.split(",") if hosts else value


def _key(here: Any, part: str, override: str, path: Sequence[str | int]) -> str | int:
    """``part`` as a key of the table or a place in the list. Raises ``UserError`` where it is neither."""
    where = ".".join(map(str, path))
    if isinstance(here, dict):
        return part
    if not isinstance(here, list):
        raise UserError(f"--set {override}: {where} is not a table, so it has no {part}")
    if not (part.isascii() and part.isdigit() and len(part) < 7 and int(part) < len(here)):
        number = f"a number from 0 to {len(here) - 1}" if here else "another path: it is empty"
        raise UserError(f"--set {override}: {where} is a list; write {number} instead of {part!r}")
    return int(part)


def _toml_value(written: str) -> Any:
    try:
        tree = tomllib.loads(f"value = [{written}]")  # in a list, so that a # is no comment but plain text
    except (ValueError, RecursionError):
        return written
    return tree["value"][0] if len(tree) == 1 and len(tree["value"]) == 1 else written


def apply_only(only: Sequence[str], factors: Sequence[Factor]) -> list[Factor]:
    """The factors cut down to the levels that were asked for, there or by the factors themselves.

    Raises ``UserError`` for what the study does not have.
    """
    by_name = {factor.name: [level.label for level in factor.levels] for factor in factors}
    chosen = chosen_levels("--only", only, by_name)
    cut = []
    for factor in factors:
        labels = chosen.get(factor.name, factor.chosen)
        levels = tuple(level for level in factor.levels if labels is None or level.label in labels)
        cut.append(replace(factor, levels=levels))
    return cut


def chosen_levels(option: str, given: Sequence[str], by_name: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """By factor, the levels that ``option`` names as FACTOR=LEVEL[,LEVEL]. Raises ``UserError`` for unknown ones."""
    chosen: dict[str, list[str]] = {}
    for words in given:
        name, separator, levels = words.partition("=")
        name, item = name.strip(), f"{option} {words}"
        if not separator or not levels.strip():
            raise UserError(f"{item}: write FACTOR=LEVEL[,LEVEL]")
        if name not in by_name:
            has = nearest(name, by_name) or (f"; it has {', '.join(by_name)}" if by_name else "; it has none")
            raise UserError(f"{item}: the study has no factor {name!r}{has}")
        chosen.setdefault(name, []).extend(_labels(levels, name, by_name, item))
    return chosen


def _labels(text: str, name: str, by_name: Mapping[str, Sequence[str]], item: str) -> list[str]:
    """The levels in a list with commas; a label may hold commas itself, so the longest that fits counts."""
    labels = sorted(by_name[name], key=len, reverse=True)
    found = []
    rest = text.strip()
    while rest:
        label = next((label for label in labels if _begins_with(rest, label)), None)
        if label is None:
            wrong = rest.partition(",")[0].strip()
            known = ", ".join(by_name[name])
            raise UserError(f"{item}: {name} has no level {wrong!r}{nearest(wrong, labels)}; it has {known}")
        found.append(label)
        rest = rest[len(label) :].strip().removeprefix(",").strip()
    return found


def _begins_with(text: str, label: str) -> bool:
    after = text.removeprefix(label).strip()
    return text.startswith(label) and (not after or after.startswith(","))


def kinds_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: table.get("kind", "local") for name, table in _tables(raw).items()}


def change_kinds(raw: Mapping[str, Any], before: Mapping[str, Any], changed: Collection[Path]) -> None:
    """Make nodes fit the kind that --set gave them, which is ``ssh`` if it gave them hosts. In place.

    ``before``: what they were. Keys that their new kind does not have are left out, but for those that --set gave.
    """
    for name, table in _tables(raw).items():
        given = {path[2] for path in changed if path[:2] == ("nodes", name) and len(path) > 2}
        if "hosts" in given and "kind" not in given:
            table["kind"] = "ssh"
        former, kind = (node_kinds().get(str(each)) for each in (before.get(name), table.get("kind", "local")))
        if former is None or kind is None or former is kind:
            continue
        lost = keys_of(former) - keys_of(group_model(str(table["kind"])))
        for key in (lost | ({"count"} if "hosts" in given else set())) - given:
            table.pop(key, None)
        if "hypervisor" in former.transports - kind.transports:
            table["placement"] = "native"


def _tables(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    nodes = raw.get("nodes")
    return {name: each for name, each in nodes.items() if isinstance(each, dict)} if isinstance(nodes, dict) else {}
