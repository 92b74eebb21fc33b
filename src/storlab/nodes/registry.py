"""All node kinds by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds kinds without a line here, through the entry-point group ``storlab.nodes``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from storlab.nodes.kind import NodeKind
from storlab.nodes.kinds.local import LocalKind
from storlab.nodes.kinds.netns import NetnsKind
from storlab.nodes.kinds.vm.kind import VmKind

_BUILT_IN: tuple[type[NodeKind], ...] = (LocalKind, NetnsKind, VmKind)


@cache
def node_kinds() -> dict[str, type[NodeKind]]:
    """Name in study files → class."""
    found = {str(cls.model_fields["kind"].default): cls for cls in _BUILT_IN}
    for entry in entry_points(group="storlab.nodes"):
        found[entry.name] = entry.load()
    return found


def own_keys(group: Any) -> NodeKind:
    """A group's kind alone, without the keys that a study adds to it."""
    cls = node_kinds()[group.kind]
    return cls.model_construct(**{name: getattr(group, name) for name in cls.model_fields})
