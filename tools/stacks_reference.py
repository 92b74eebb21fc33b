"""The page ``docs/reference/stacks.md``, written from the layers by ``python -m tools.stacks_reference``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from storlab.layers.base import Crossing, Layer
from storlab.nodes.needs import Needs, remedy
from storlab.registry import layer_types
from storlab.study.study import parse_study
from tools.study_reference import purpose
from tools.study_reference_text import EXAMPLES

_START = """# What a stack can be made of

<!-- Written by `python -m tools.stacks_reference` from what layers say of themselves; change these. -->

A stack is a list of layers, the lowest first; each lies on what the one below gives, so columns two and three say which
fit together. A layer without anything in column two can be the lowest. Where a cell says "further disks", the layer
takes those of [further chains](study.md#nodesnameextra), which it names. What this machine lacks, a guest's kernel may
have: `storlab plan STUDY` says of each cell where it could not run, and why. The keys of a layer are behind its name.

The last column has kernel modules, then packages of Debian, as the layer's example needs them; other values of its keys
may need others. Guests have them all, and you are root there.
"""
_ROOMS = {
    "fs.files": "Files and directories",
    "block": "Disks",
    "fs": "File systems and images",
    "zfs": "ZFS",
    "attach": "Disks and folders of virtual machines",
    "net": "Disks over a network",
    "share": "Folders over a network",
    "database": "Databases",
}
"""By how the name of a layer's module goes on after ``storlab.layers.``; the first that fits."""
_EVERYWHERE = {"bash", "coreutils", "kmod", "mount", "util-linux"}
_FRAME = {"title": 'title = "x"\n', "stack": 'stack = [{ layer = "directory" }]\n'}
_LOAD = '[workload.w]\nfio = { rw = "read" }\n'


def reference() -> str:
    """The page."""
    return "".join([_START, *_parts()])


def _parts() -> Iterator[str]:
    own = {kind: cls for kind, cls in layer_types().items() if cls.__module__.startswith("storlab.")}
    rooms = {
        kind: next(room for room in _ROOMS if f"{cls.__module__}.".startswith(f"storlab.layers.{room}."))
        for kind, cls in own.items()
    }
    for room, title in _ROOMS.items():
        yield f"\n## {title}\n\n| layer | lies on | gives | what it is | needs |\n| --- | --- | --- | --- | --- |\n"
        for kind, cls in own.items():
            if rooms[kind] == room:
                yield _row(kind, cls)


def _row(kind: str, cls: type[Layer]) -> str:
    below = " or ".join(taken.kind for taken in cls.takes if taken is not None)
    keys = cls.model_json_schema()["properties"]
    if not below and any(
        "array" in str(keys[name].get("anyOf", keys[name])) for name in ("disks", "vdevs") if name in keys
    ):
        below = "further disks"
    crosses = f"; crosses by the {cls.transport}" if issubclass(cls, Crossing) else ""
    cells = (f"[`{kind}`](study.md#layer-{kind})", below, f"{cls.gives.kind}{crosses}", purpose(cls), _needs(kind))
    return f"| {' | '.join(cells)} |\n"


def _needs(kind: str) -> str:
    """Of the layer's example."""
    text = EXAMPLES[f"layer {kind}"]
    head = re.split(r"^\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    text = "".join(line for key, line in _FRAME.items() if not re.search(rf"^{key}\b", head, re.MULTILINE)) + text
    if not re.search(r"^\[workload\b", text, re.MULTILINE):
        text += _LOAD
    study = parse_study(text.encode(), kind, lambda name: "")
    found = Needs()
    for layer in (layer for cell in study.cells for unit in cell.units for layer in unit.layers):
        if layer.layer == kind:
            found |= layer.needs()
    kernel = [f"`{name}`" for name in (*found.modules, *found.filesystems)]
    packages = {remedy(name).removeprefix("apt-get install ") for name in found.programs} - _EVERYWHERE
    parts = ("root" if found.root else "", ", ".join(kernel), ", ".join(sorted(packages)))
    return "; ".join(filter(None, parts))


if __name__ == "__main__":
    sys.stdout.write(reference())
