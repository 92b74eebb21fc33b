"""``storlab shell``."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from storlab.cli.images_of_study import build_images
from storlab.cli.progress import levels_text, observer
from storlab.errors import UserError
from storlab.layers.resources import Dir
from storlab.nodes.terminal import shell_on
from storlab.run.look_around import Standing, standing_cell
from storlab.run.observer import Observer
from storlab.run.session import node_names
from storlab.study.messages import nearest
from storlab.study.study import Study, find_study, load_study


def shell(name: str, node: str | None, overrides: Sequence[str], only: Sequence[str], build: bool) -> int:
    """Put a cell up and give the user a shell on a node; returns the shell's exit status."""
    study = load_study(find_study(name), overrides, only)
    if build and (status := build_images(study, quiet=False)):
        return status
    folder = Path(tempfile.mkdtemp(prefix="storlab-shell-")) / "run"
    with observer(quiet=True) as watching:
        status = asyncio.run(_shell(study, node, folder, watching))
    shutil.rmtree(folder.parent, ignore_errors=True)
    return status


async def _shell(study: Study, node: str | None, folder: Path, watching: Observer) -> int:
    print("Putting the cell up …", file=sys.stderr)
    async with standing_cell(study, folder, watching) as standing:
        name = _chosen(standing, node)
        stack = standing.stacks.get(name)
        resource = stack.resource if stack is not None else None
        path = getattr(resource, "path", None)
        levels = levels_text(standing.cell.levels)
        on = f", on {path}" if path else ""
        greeting = (
            f"Storlab: node {name}{on}{f' ({levels})' if levels else ''}. All is taken down when this shell ends."
        )
        return await shell_on(standing.nodes[name], path if isinstance(resource, Dir) else None, greeting)


def _chosen(standing: Standing, node: str | None) -> str:
    cell = standing.cell
    if node is None:
        loaded = (name for load in cell.loads for group in load.on for name in node_names(group, cell.nodes[group]))
        return next(loaded)
    if node not in standing.nodes:
        raise UserError(
            f"there is no node {node!r}; there are: {', '.join(standing.nodes)}{nearest(node, standing.nodes)}"
        )
    return node
