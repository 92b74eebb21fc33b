"""What probes say of how they watched: once for all nodes and cells where it was so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_DISKS = "disks"  # the same set-up has another loop device in each trial: listed together


@dataclass(frozen=True)
class Observed:
    """How one probe watched one node in one trial of a cell. ``facts`` are of JSON's types."""

    cell: int
    node: str
    probe: str
    facts: Mapping[str, object]


def probe_facts(observed: Iterable[Observed]) -> list[dict[str, object]]:
    """One entry for all that were alike: ``probe``, ``nodes``, ``cells``, ``disks`` of all of them, and the facts."""
    found: list[dict[str, object]] = []
    places: list[tuple[dict[str, None], dict[int, None], dict[str, None]]] = []
    for each in observed:
        key = {"probe": each.probe, **{name: fact for name, fact in each.facts.items() if name != _DISKS}}
        if key not in found:
            found.append(key)
            places.append(({}, {}, {}))
        nodes, cells, disks = places[found.index(key)]
        nodes[each.node] = cells[each.cell] = None
        named = each.facts.get(_DISKS)
        disks.update(dict.fromkeys(map(str, named if isinstance(named, list | tuple) else ())))
    return [
        {"probe": key.pop("probe"), "nodes": [*nodes], "cells": sorted(cells), _DISKS: sorted(disks), **key}
        for key, (nodes, cells, disks) in zip(found, places, strict=True)
    ]
